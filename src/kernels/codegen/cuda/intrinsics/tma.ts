/** Boxes of matrices that come to shared memory by themselves, and gates that tell when, by the names that our kernels use; whoever emulates the machine brings its own. */

export const tmaIntrinsics = `struct __align__(64) TensorMap { unsigned long long words[16]; };
typedef unsigned long long Gate;
static __device__ __forceinline__ unsigned sharedPlace(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
// A gate opens when so many have passed it and all bytes that are expected have come; then it begins anew.
static __device__ __forceinline__ void mbarrierInit(Gate* gate, unsigned passes) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedPlace(gate)), "r"(passes) : "memory");
}
static __device__ __forceinline__ void fenceMbarrierInit() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static __device__ __forceinline__ void mbarrierArrive(Gate* gate) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(sharedPlace(gate)) : "memory");
}
static __device__ __forceinline__ void mbarrierArriveExpectTx(Gate* gate, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedPlace(gate)), "r"(bytes) : "memory");
}
// Waits until a gate has opened for the so many-th time, counted in even and odd ones.
static __device__ __forceinline__ void mbarrierWait(Gate* gate, unsigned parity) {
  asm volatile(
      "{\\n.reg .pred isOpen;\\nagain:\\nmbarrier.try_wait.parity.shared.b64 isOpen, [%0], %1;\\n@isOpen bra open;\\nbra again;\\nopen:\\n}"
      ::"r"(sharedPlace(gate)), "r"(parity) : "memory");
}
// Begins to bring a matrix's box from a column and a row on; what lies outside of the matrix becomes 0.
static __device__ __forceinline__ void tmaLoad(void* to, const TensorMap* map, int column, int row, int matrix, Gate* gate) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(sharedPlace(to)), "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(sharedPlace(gate)) : "memory");
}`;
