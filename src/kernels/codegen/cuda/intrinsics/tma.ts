/** TMA: asynchronous loads of tensor-map boxes into shared memory. Needs the mbarrier intrinsics. */

export const tmaIntrinsics = `struct __align__(64) TensorMap { unsigned long long words[16]; };
// Loads the box at [matrix, row, column] of a tensor map; elements outside of the tensor become 0. Completes on \`barrier\`.
static __device__ __forceinline__ void tmaLoad(void* smem, const TensorMap* map, int column, int row, int matrix, Mbarrier* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(smemAddress(smem)), "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(smemAddress(barrier)) : "memory");
}`;

/** Needs the mbarrier intrinsics. */
export const cpAsyncBulk = `// Copies to shared memory; addresses and size are multiples of 16 bytes. Completes on \`barrier\`.
static __device__ __forceinline__ void cpAsyncBulk(void* smem, const void* from, unsigned bytes, Mbarrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(smemAddress(smem)), "l"(from), "r"(bytes), "r"(smemAddress(barrier)) : "memory");
}`;

/** Needs the tensor maps and the mbarrier intrinsics. */
export const tmaStore = `// Copies a box from shared memory to a tensor map, without the elements outside of the tensor. A fence and a barrier precede it.
static __device__ __forceinline__ void tmaStore(const TensorMap* map, const void* smem, int column, int row, int matrix) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(map), "r"(smemAddress(smem)), "r"(column), "r"(row), "r"(matrix) : "memory");
}
// A thread's stores since its last commit become a group.
static __device__ __forceinline__ void bulkCommit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most \`pending\` groups of the thread still read shared memory.
template <unsigned pending>
static __device__ __forceinline__ void bulkWaitRead() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }`;
