/** Vectors of neighbouring elements (`Vec<T, N>`), and how a thread loads and stores them: whole, strided, interleaved, or a tail. */

import { device, type Intrinsic } from "./intrinsic.js";

export const vecIntrinsics = {
  /** Neighbouring elements that one thread handles. Aligned memory is accessed with one instruction of up to 16 bytes. */
  Vec: {
    code: `template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T element[N];
};`,
  },
  loadVec: {
    needs: ["Vec"],
    code: `template <int N, class T>
${device} Vec<T, N> loadVec(const T* source) {
  return *reinterpret_cast<const Vec<T, N>*>(source);
}`,
  },
  storeVec: {
    needs: ["Vec"],
    code: `template <class T, int N>
${device} void storeVec(T* destination, const Vec<T, N>& vec) {
  *reinterpret_cast<Vec<T, N>*>(destination) = vec;
}`,
  },
  /** Four elements, `stride` apart. */
  loadStrided: {
    needs: ["Vec"],
    code: `template <class T>
${device} Vec<T, 4> loadStrided(const T* source, int stride) {
  Vec<T, 4> vec;
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) vec.element[k] = source[(long long)(int)k * stride];
  return vec;
}`,
  },
  storeStrided: {
    needs: ["Vec"],
    code: `template <class T>
${device} void storeStrided(T* destination, int stride, const Vec<T, 4>& vec) {
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) destination[(long long)(int)k * stride] = vec.element[k];
}`,
  },
  /** Four elements of each of N inputs that are interleaved in memory, read as N whole vectors. */
  loadInterleaved: {
    needs: ["Vec", "loadVec"],
    code: `template <int N, class T>
${device} void loadInterleaved(const T* source, Vec<T, 4> (&values)[N]) {
  Vec<T, 4> read[N];
  #pragma unroll
  for (int n = 0; n < N; n++) read[n] = loadVec<4>(source + 4 * n);
  #pragma unroll
  for (int n = 0; n < N; n++) {
    #pragma unroll
    for (int k = 0; k < 4; k++) values[n].element[k] = read[(k * N + n) / 4].element[(k * N + n) % 4];
  }
}`,
  },
  /** The first `remaining` of four elements, `stride` apart; the others are 0. */
  loadTail: {
    needs: ["Vec"],
    code: `template <class T>
${device} Vec<T, 4> loadTail(const T* source, int stride, unsigned remaining) {
  Vec<T, 4> vec;
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) vec.element[k] = k < remaining ? source[(long long)(int)k * stride] : T(0);
  return vec;
}`,
  },
  storeTail: {
    needs: ["Vec"],
    code: `template <class T>
${device} void storeTail(T* destination, int stride, unsigned remaining, const Vec<T, 4>& vec) {
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) {
    if (k < remaining) destination[(long long)(int)k * stride] = vec.element[k];
  }
}`,
  },
} satisfies Record<string, Intrinsic>;
