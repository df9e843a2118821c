/** Copies to shared memory that go on by themselves, by the names that our kernels use; whoever emulates the machine brings its own. */

export const copyInstructions = `// Begins to copy some bytes to shared memory, of which the last ones become 0.
template <unsigned size>
static __device__ __forceinline__ void cpAsync(void* to, const void* from, unsigned bytes) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (size == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(place), "l"(from), "n"(size), "r"(bytes));
  }
}
static __device__ __forceinline__ void cpAsyncCommit() { asm volatile("cp.async.commit_group;"); }
// Waits until no more than so many groups of copies are on their way.
template <unsigned left>
static __device__ __forceinline__ void cpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}`;
