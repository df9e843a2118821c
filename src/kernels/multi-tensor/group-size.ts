/** The sizes for which multi-tensor kernels are printed: powers of two up to 16, then multiples of 16. */

const step = 16;

/** The smallest printed size for so many tensors. The rest is padded with empty members; fewer sizes mean fewer kernels to compile. */
export function paddedGroupSize(tensors: number): number {
  return tensors > step ? Math.ceil(tensors / step) * step : 2 ** Math.ceil(Math.log2(tensors));
}
