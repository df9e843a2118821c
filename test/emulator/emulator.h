/**
 * What the emulator libraries share. They replace libcuda, NVRTC, cuBLASLt, NVTX and NCCL on machines without a
 * GPU: a device pointer is a pointer of this process, a stream runs its work at once, a kernel is compiled by
 * g++. Their results and errors follow NVIDIA's documentation and measurements on a real device.
 *
 * The functions named `emulator_…` are for tests and for the other libraries; libcuda exports all of them.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))

/** Counts a call, and returns the status that a test has injected for it, or 0. */
EMULATOR_EXPORT int emulator_note(const char* function);

/** A setting, or one of the emulator's figures; -1 if the name is unknown. */
EMULATOR_EXPORT long long emulator_get(const char* key);

/** True if the whole range is accessible device memory. */
EMULATOR_EXPORT int emulator_holds(uint64_t address, uint64_t size);

/** True if the whole range is in one allocation of cuMemAlloc. */
EMULATOR_EXPORT int emulator_is_allocated(uint64_t address, uint64_t size);

/** Submits work to a stream like a kernel launch; `data` is copied. Returns a status of libcuda. */
EMULATOR_EXPORT int emulator_submit(uint64_t stream, int nodeType, int (*run)(const void* data), const void* data,
                                  size_t size);
