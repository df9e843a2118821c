"""The benchmark's model sizes, weights, batches and printed line, for peers in Python.  ../workload.ts is its twin for peers in JavaScript, and ../report.ts documents the printed line. Both compute every number from one hash of (seed, index), so all peers train the same weights on the same batches and their first losses agree. """
import json
import math
import resource
import statistics
import time

import numpy as np

BATCH, SOURCES, FEATURES, WIDTH, HEADS, LAYERS, HIDDEN, CLASSES = 256, 12, 193, 256, 4, 2, 1024, 3
BATCHES = 4
GEMM = (3072, 256, 1024)  # m, n, k


def _hash(seed, count):
    h = np.arange(count, dtype=np.uint32) + np.uint32((seed * 0x9E3779B9) & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def values(seed, shape, deviation=1.0):
    """Uniform around 0, with this standard deviation."""
    unit = _hash(seed, math.prod(shape)) / 2.0**32 - 0.5
    return (unit * (deviation * math.sqrt(12))).astype(np.float32).reshape(shape)


def batch(index):
    """x [B, S, F] and labels [B, S]."""
    labels = _hash(2000 + index, BATCH * SOURCES) % CLASSES
    return values(1000 + index, (BATCH, SOURCES, FEATURES)), labels.astype(np.int64).reshape(BATCH, SOURCES)


def weights():
    """Name → array. The twelve input matrices are stacked in one [S, F, D]."""
    named = {}

    def matrix(name, *shape):
        named[name] = values(len(named) + 1, shape, math.sqrt(2 / shape[-2]))

    def constant(name, value, *shape):
        named[name] = np.full(shape, value, dtype=np.float32)

    matrix("win", SOURCES, FEATURES, WIDTH)
    constant("bin", 0, SOURCES, 1, WIDTH)
    for layer in range(LAYERS):
        for name in ("wq", "wk", "wv", "wo"):
            matrix(f"{layer}.{name}", WIDTH, WIDTH)
        constant(f"{layer}.g1", 1, WIDTH)
        constant(f"{layer}.s1", 0, WIDTH)
        matrix(f"{layer}.w1", WIDTH, HIDDEN)
        constant(f"{layer}.b1", 0, HIDDEN)
        matrix(f"{layer}.w2", HIDDEN, WIDTH)
        constant(f"{layer}.b2", 0, WIDTH)
        constant(f"{layer}.g2", 1, WIDTH)
        constant(f"{layer}.s2", 0, WIDTH)
    matrix("wout", WIDTH, CLASSES)
    constant("bout", 0, CLASSES)
    return named


def report(peer, version, step, prepare_gemm, steps=20, warm_up=3):
    """Times `step(index) → loss` and the function that `prepare_gemm` returns, and prints the line that the runner reads."""
    losses, times = [], []
    for index in range(warm_up + steps):
        started = time.perf_counter()
        losses.append(step(index % BATCHES))
        times.append((time.perf_counter() - started) * 1e3)
    # Linux counts in KiB. Taken before the GEMM, whose operands are not part of a step.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    step_times, times = times[warm_up:], []
    gemm = prepare_gemm()
    for _ in range(warm_up + 20):
        started = time.perf_counter()
        gemm()
        times.append((time.perf_counter() - started) * 1e3)
    gemm_ms = statistics.median(times[warm_up:])
    m, n, k = GEMM
    print(json.dumps({
        "peer": peer,
        "version": version,
        "step": {
            "stepMs": statistics.median(step_times), "bestStepMs": min(step_times), "count": steps,
            "peakRssBytes": peak, "losses": losses[:5],
        },
        "gemmMs": gemm_ms,
        "bestGemmMs": min(times[warm_up:]),
        "gflops": 2 * m * n * k / gemm_ms / 1e6,
    }))
