/** Draws random values into an array, on its device, and the same bits on the host. The stream alone determines them. */

import { type Dtype, dtypes } from "../../ir/index.js";
import {
  blocksForRows,
  type Distribution,
  drawHostValues,
  orthogonal,
  orthogonalKernels,
  orthogonalShape,
  type RandomStream,
  standardNormal,
  submit,
  type ValueDtype,
  valueDtypes,
  valueKernel,
  valueLaunch,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { copyCalls } from "../copy.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { OpLowering } from "../lowering.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";

/** Elements of a distribution of which a range is zero, such as the row of a padding index. */
interface Padded {
  readonly kind: "padded";
  readonly values: Distribution;
  readonly zeros: { readonly first: number; readonly count: number };
}

/** A matrix with orthogonal rows, or with orthogonal columns if it has more rows. */
interface Orthogonal {
  readonly kind: "orthogonal";
  readonly rows: number;
  readonly columns: number;
  readonly gain: number;
}

/** The random values of an array. */
export type Random = Distribution | Padded | Orthogonal;

/** True for dtypes that a device draws itself. */
export function isDrawable(dtype: Dtype): dtype is ValueDtype {
  return (valueDtypes as readonly Dtype[]).includes(dtype);
}

/** The values of an array of `count` elements, as float32. */
export function drawOnHost(random: Random, stream: RandomStream, count: number): Float32Array<ArrayBuffer> {
  switch (random.kind) {
    case "orthogonal":
      return orthogonal(random.rows, random.columns, random.gain, stream);
    case "padded": {
      const { first, count: zeros } = random.zeros;
      return drawHostValues(random.values, stream, count).fill(0, first, first + zeros);
    }
    default:
      return drawHostValues(random, stream, count);
  }
}

/** Overwrites a contiguous array of a drawable dtype with the values that `drawOnHost` has, rounded to its dtype. */
export function drawArray(runtime: Runtime, target: DeviceArray, random: Random, stream: RandomStream): void {
  if (!target.storage) return;
  runtime.traceSink?.reject("draw initial values", target.storage.label);
  const lowering = new OpLowering(runtime, random.kind);
  try {
    lowerRandom(lowering, target, random, stream);
    submit(runtime, lowering.calls);
  } finally {
    lowering.close();
  }
}

function lowerRandom(lowering: Lowering, target: DeviceArray, random: Random, stream: RandomStream): void {
  switch (random.kind) {
    case "orthogonal":
      lowerOrthogonal(lowering, target, random, stream);
      return;
    case "padded": {
      const { bytes } = dtypes[target.dtype];
      const { first, count } = random.zeros;
      lowerValues(lowering, target, random.values, stream);
      if (target.storage) lowering.fill(lowering.view(target.storage, first * bytes, count * bytes), 0);
      return;
    }
    default:
      lowerValues(lowering, target, random, stream);
  }
}

/** The most values of one launch, whose count has 32 bits; a multiple of four. */
export const valuesPerLaunch = 2 ** 31;

/** Emits the launches of independent values. */
export function lowerValues(
  lowering: Lowering,
  { storage, shape, dtype }: DeviceArray,
  distribution: Distribution,
  stream: RandomStream,
  perLaunch = valuesPerLaunch,
): void {
  if (!storage || !isDrawable(dtype)) return;
  const count = sizeOf(shape);
  const { bytes } = dtypes[dtype];
  const source = valueKernel(distribution.kind, dtype);
  for (let first = 0; first < count; first += perLaunch) {
    const range = { first, count: Math.min(perLaunch, count - first) };
    const { blocks, scalars } = valueLaunch(distribution, stream, range);
    const part = range.count === count ? storage : lowering.view(storage, first * bytes, range.count * bytes);
    lowering.launch({ op: distribution.kind, source, blocks, arguments: [part, ...scalars] });
  }
}

function lowerOrthogonal(
  lowering: Lowering,
  target: DeviceArray,
  { rows, columns, gain }: Orthogonal,
  stream: RandomStream,
): void {
  const { count, length, stride } = orthogonalShape(rows, columns);
  const reflectors = lowering.scratchArray([count, stride], "f32");
  const vectors = lowering.scratchArray([count, stride], "f32");
  if (!reflectors.storage || !vectors.storage) return;
  lowerValues(lowering, reflectors, standardNormal, stream);
  const launch = { op: "orthogonal", blocks: blocksForRows(count) };
  lowering.launch({
    ...launch,
    source: orthogonalKernels.scaleReflectors,
    arguments: [reflectors.storage, count, length, stride],
  });
  lowering.launch({
    ...launch,
    source: orthogonalKernels.reflectUnits,
    arguments: [vectors.storage, reflectors.storage, count, stride, gain],
  });
  const shape = [rows, columns];
  const strides = rows <= columns ? [stride, 1] : [1, stride];
  lowering.emit(
    copyCalls({ ...vectors, shape, strides }, { ...target, shape, strides: contiguousStrides(shape) }),
  );
}
