"""Inputs that mean something to the models of the zoo: pages of text, speech-like sound, sentences, molecules.

A detector that is fed noise answers almost nothing everywhere, and then any compiler passes.
"""

from __future__ import annotations

import numpy as np


def text_pictures(batch: int, *, seed: int = 0) -> np.ndarray:
    """Lines of text as the text-direction model sees them, float32[batch,3,48,192] in -1..1; odd ones upside down.

    Dark strokes on light paper: letters of upright stems with bars and bows, on a base line, with gaps for words.
    """
    pictures = np.empty((batch, 3, 48, 192), np.float32)
    for index in range(batch):
        rng = np.random.default_rng(seed + index)
        paper = np.full((48, 192), 0.9)
        left = 8
        while left < 176:
            width = int(rng.integers(6, 12))
            top = int(rng.choice([6, 16]))
            paper[top:38, left : left + 3] = 0.1  # the stem
            bar = int(rng.choice([top, 20, 35]))
            paper[bar : bar + 3, left : left + width] = 0.1  # a bar
            if rng.random() < 0.4:
                paper[16:38, left + width - 3 : left + width] = 0.1  # a second stem: n, o, h, b
            if rng.random() < 0.15:
                paper[38:46, left : left + 3] = 0.1  # a descender
            left += width + int(rng.choice([4, 4, 4, 12]))
        paper += 0.03 * rng.standard_normal(paper.shape)
        if index % 2:
            paper = paper[::-1, ::-1]
        pictures[index] = 2 * paper - 1
    return pictures


def page(batch: int, height: int, width: int, *, seed: int = 0) -> np.ndarray:
    """Pages with lines of text as the text-detection model sees them, float32[batch,3,height,width]; sides are
    multiples of 32. The model finds the lines: its map is near 1 on them and near 0 between."""
    pages = np.full((batch, 3, height, width), 0.8, np.float32)
    for index in range(batch):
        lines = text_pictures(2 * (height // 64), seed=seed + 10 * index)[::2]
        for number, line in enumerate(lines):
            picked = line[:, :, : min(width, 192)]
            pages[index, :, 64 * number + 8 : 64 * number + 56, : picked.shape[2]] = picked
    return pages


def speech(seconds: float, rate: int, *, seed: int = 0) -> np.ndarray:
    """Speech-like sound, float32 in -1..1: a gliding pitch with its harmonics under two formants, in syllables with
    pauses between, and a little noise."""
    rng = np.random.default_rng(seed)
    length = int(seconds * rate)
    time = np.arange(length) / rate
    pitch = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 0.9 * time)) / rate
    sound = np.zeros(length)
    for harmonic in range(1, 20):
        frequency = 140 * harmonic
        strength = np.exp(-(((frequency - 600) / 300) ** 2)) + 0.5 * np.exp(-(((frequency - 1500) / 400) ** 2))
        sound += strength * np.sin(harmonic * pitch)
    syllables = np.clip(np.sin(2 * np.pi * 2.3 * time + 1), 0, 1) * (np.sin(2 * np.pi * 0.31 * time) > -0.5)
    sound = 0.3 * syllables * sound / np.abs(sound).max()
    return (sound + 0.005 * rng.standard_normal(length)).astype(np.float32)


def voice_windows(count: int, *, seed: int = 0) -> np.ndarray:
    """Consecutive windows of 512 samples at 16 kHz, each after the 64 samples before it: float32[count,576]."""
    sound = np.concatenate([np.zeros(64, np.float32), speech(count * 512 / 16000, 16000, seed=seed)])
    return np.stack([sound[512 * n : 512 * n + 576] for n in range(count)])


def spectrograms(batch: int, frames: int, *, seed: int = 0) -> np.ndarray:
    """Log spectra of a microphone, a far end and a processed signal as the echo-quality model sees them:
    float32[batch,3,frames,160], decibels over 40, shifted to about -1..1."""
    made = np.empty((batch, 3, frames, 160), np.float32)
    for index in range(batch):
        near = speech((frames + 2) * 0.01, 16000, seed=seed + index)
        far = speech((frames + 2) * 0.01, 16000, seed=seed + index + 100)[::-1]
        for channel, sound in enumerate((near + 0.4 * far, far, near)):
            cut = np.stack([sound[160 * n : 160 * n + 320] for n in range(frames)])
            power = np.abs(np.fft.rfft(cut * np.hanning(320), axis=1)[:, :160]) ** 2
            made[index, channel] = (10 * np.log10(np.maximum(power, 1e-8)) + 40) / 40
    return made


def sentences(batch: int, length: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Token ids of sentences that fill part of `length`: a start mark, words, an end mark, padding behind the mask."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((batch, length), np.int64)
    mask = np.zeros((batch, length), np.int64)
    for row in range(batch):
        used = length if row == 0 else max(3, length - 1 - row)
        ids[row, 0], ids[row, used - 1] = 101, 102
        ids[row, 1 : used - 1] = rng.integers(1996, 8000, used - 2)  # common words
        mask[row, :used] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def molecules(sizes: tuple[int, ...], *, seed: int = 0) -> dict[str, np.ndarray]:
    """Rings of carbon-like atoms with a tail, one molecule of each size, as the fingerprint model sees them: one-hot
    atom and bond features, the spectrum of each molecule's Laplacian and return probabilities of a random walk."""
    rng = np.random.default_rng(seed)
    parts: dict[str, list[np.ndarray]] = {}
    start = 0
    for number, size in enumerate(sizes):
        ring = min(size, 6)
        bonds = [(a, (a + 1) % ring) for a in range(ring)] if ring > 2 else [(a, a + 1) for a in range(ring - 1)]
        bonds += [(a, a + 1) for a in range(max(ring - 1, 0), size - 1)]
        adjacency = np.zeros((size, size))
        for a, b in bonds:
            adjacency[a, b] = adjacency[b, a] = 1
        degree = adjacency.sum(1)
        values, vectors = np.linalg.eigh(np.diag(degree) - adjacency)
        walk = adjacency / np.maximum(degree, 1)[:, None]
        step, returns = np.eye(size), []
        for _ in range(16):
            step = step @ walk
            returns.append(np.diag(step))
        spectrum = np.zeros((size, 8))
        spectrum[:, : min(size, 8)] = values[:8]
        basis = np.zeros((size, 8))
        basis[:, : min(size, 8)] = vectors[:, :8]
        feat = np.zeros((size, 85))
        feat[np.arange(size), rng.choice([5, 6, 7], size)] = 1  # carbon, nitrogen, oxygen
        feat[:, 60 + rng.integers(0, 4)] = 1
        feat[:, 80] = degree
        both = np.array(bonds + [(b, a) for a, b in bonds], np.int64).reshape(-1, 2).T
        bond_feat = np.zeros((both.shape[1], 13))
        bond_feat[:, 0 if number % 2 else 3] = 1
        bond_feat[:, 12] = 1
        for name, part in (
            ("feat", feat), ("edge_feat", bond_feat), ("edge_index", both + start), ("laplacian_eigvec", basis),
            ("laplacian_eigval", spectrum), ("rw_return_probs", np.stack(returns, 1)),
            ("batch", np.full(size, number, np.int64)),
        ):  # fmt: skip
            parts.setdefault(name, []).append(part)
        start += size
    joined = {name: np.concatenate(p, axis=1 if name == "edge_index" else 0) for name, p in parts.items()}
    made = {n: a if a.dtype == np.int64 else a.astype(np.float32) for n, a in joined.items()}
    return {**made, "graph_slots": np.zeros(len(sizes), np.float32)}
