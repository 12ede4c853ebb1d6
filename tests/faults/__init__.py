"""The tests are tested: compiler faults put into the code one at a time, each of which the suite must find."""
