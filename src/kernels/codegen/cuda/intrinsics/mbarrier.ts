/** mbarrier: barriers in shared memory that count arrivals of threads and bytes of asynchronous copies. */

export const mbarrierIntrinsics = `typedef unsigned long long Mbarrier;
static __device__ __forceinline__ unsigned smemAddress(const void* pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }
// A phase completes after \`count\` arrivals and once all expected transaction bytes have landed; then the next phase begins.
static __device__ __forceinline__ void mbarrierInit(Mbarrier* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smemAddress(barrier)), "r"(count) : "memory");
}
static __device__ __forceinline__ void fenceMbarrierInit() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static __device__ __forceinline__ void mbarrierArrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smemAddress(barrier)) : "memory");
}
static __device__ __forceinline__ void mbarrierArriveExpectTx(Mbarrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smemAddress(barrier)), "r"(bytes) : "memory");
}
// Waits for the completion of the phase with this parity.
static __device__ __forceinline__ void mbarrierWait(Mbarrier* barrier, unsigned parity) {
  asm volatile(
      "{\\n.reg .pred done;\\nretry:\\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\\n@done bra complete;\\nbra retry;\\ncomplete:\\n}"
      ::"r"(smemAddress(barrier)), "r"(parity) : "memory");
}`;
