/**
 * What the emulator libraries share. They take the place of libcuda, NVRTC, cuBLASLt and NVTX where there is no GPU: a
 * device pointer is a pointer of this process, a stream runs its work at once, a kernel is compiled by g++. What they
 * answer, and when they reject, follows NVIDIA's documentation and what was measured on a real device.
 *
 * The functions named `emulator_…` are for tests, and for the libraries among themselves; libcuda has them all.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))

/** Counts a call, and answers with the status that a test has planned for it, or 0. */
EMULATOR_EXPORT int emulator_note(const char* function);

/** A setting, or one of the figures that the emulator keeps; -1 where there is none of that name. */
EMULATOR_EXPORT long long emulator_get(const char* key);

/** Does all of this range lie in device memory that may be used? */
EMULATOR_EXPORT int emulator_holds(uint64_t address, uint64_t size);

/** Gives a stream work in the way of a kernel launch; `data` is copied. Answers with a status of libcuda. */
EMULATOR_EXPORT int emulator_submit(uint64_t stream, int nodeType, int (*run)(const void* data), const void* data,
                                  size_t size);
