/** cp.async: asynchronous copies from global to shared memory, in commit groups. */

export const cpAsyncIntrinsics = `// Copies \`bytes\` of \`size\` bytes and fills the rest with 0.
template <unsigned size>
static __device__ __forceinline__ void cpAsync(void* smem, const void* gmem, unsigned bytes) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(smem);
  if constexpr (size == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(gmem), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(address), "l"(gmem), "n"(size), "r"(bytes));
  }
}
static __device__ __forceinline__ void cpAsyncCommit() { asm volatile("cp.async.commit_group;"); }
// Waits until at most \`pending\` commit groups are in flight.
template <unsigned pending>
static __device__ __forceinline__ void cpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}`;
