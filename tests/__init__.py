"""The tests of the six packages; the folders mirror theirs."""
