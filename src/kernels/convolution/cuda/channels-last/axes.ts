/** How windows meet the elements of an image along one axis, in numbers that the kernels take. */

import type { ConvolutionShape } from "../../problem.js";

/**
 * Position i and tap j meet at element origin + step · i + tapStep · j of the gathered image. Position i is element first + stride · i of
 * the other image, and tap j is tap firstTap + tapStride · j of the kernel.
 */
export interface WindowAxis {
  readonly size: number;
  readonly positions: number;
  readonly step: number;
  readonly origin: number;
  readonly taps: number;
  readonly tapStep: number;
  readonly first: number;
  readonly stride: number;
  readonly firstTap: number;
  readonly tapStride: number;
}

type Axis = 0 | 1;

/** The windows of an output over the input. */
export function windowAxis(shape: ConvolutionShape, axis: Axis): WindowAxis {
  return {
    ...{ size: shape.size[axis], positions: shape.outSize[axis], step: shape.stride[axis] },
    ...{ origin: -shape.padding[axis], taps: shape.kernel[axis], tapStep: shape.dilation[axis] },
    ...{ first: 0, stride: 1, firstTap: 0, tapStride: 1 },
  };
}

/** The input elements whose distance from the padded border has this residue modulo the stride, and the taps that meet them. */
export function residueAxis(shape: ConvolutionShape, axis: Axis, residue: number): WindowAxis {
  const [size, outSize, kernel] = [shape.size[axis], shape.outSize[axis], shape.kernel[axis]];
  const [stride, padding, dilation] = [shape.stride[axis], shape.padding[axis], shape.dilation[axis]];
  const residues = Array.from({ length: stride }, (_, tap) => (tap * dilation) % stride);
  const firstTap = residues.indexOf(residue);
  let tapStride = 1;
  while ((tapStride * dilation) % stride !== 0) tapStride++;
  const first = (((residue - padding) % stride) + stride) % stride;
  const meets = firstTap >= 0 && firstTap < kernel;
  return {
    ...{ size: outSize, positions: first < size ? Math.ceil((size - first) / stride) : 0, step: 1 },
    origin: meets ? (first + padding - firstTap * dilation) / stride : 0,
    taps: meets ? Math.ceil((kernel - firstTap) / tapStride) : 0,
    tapStep: -((tapStride * dilation) / stride),
    ...{ first, stride, firstTap: Math.max(0, firstTap), tapStride },
  };
}
