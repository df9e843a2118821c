/** Thread block clusters: distributed shared memory (mapa) and the cluster barrier. */

export const clusterIntrinsics = `// The address of the same shared memory in the CTA of that rank in the cluster.
template <class T>
static __device__ __forceinline__ T* mapaShared(T* local, unsigned rank) {
  unsigned long long address;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(local), "r"(rank));
  return reinterpret_cast<T*>(address);
}
static __device__ __forceinline__ void clusterArrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
static __device__ __forceinline__ void clusterWait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }`;
