/** Collation: makes one batch of several samples. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { formatShape, type Shape, sizeOf } from "../ops/index.js";
import {
  type Device,
  fromTyped,
  readNested,
  stack,
  Tensor,
  type TypedNumbers,
  tensor,
} from "../tensor/index.js";

/** An array on the host: elements in row-major order with their shape. */
export interface HostArray {
  readonly values: TypedNumbers;
  readonly shape: Shape;
  /** Default: that of the typed array. */
  readonly dtype?: Dtype;
}

/** What samples become in a batch: numbers and arrays a tensor, tuples and records one of each field, and anything else a list. */
export type Collated<Sample> = Sample extends number | boolean | Tensor | TypedNumbers | HostArray
  ? Tensor
  : Sample extends readonly number[]
    ? Tensor
    : Sample extends readonly unknown[]
      ? { readonly [Index in keyof Sample]: Collated<Sample[Index]> }
      : Sample extends string | Date | bigint | null | undefined
        ? readonly Sample[]
        : { readonly [Field in keyof Sample]: Collated<Sample[Field]> };

/** Options of `defaultCollate`. */
export interface CollateOptions {
  /** Default: the first device that was opened. */
  readonly device?: Device;
}

const collateOptionNames: OptionNames<CollateOptions> = { device: true };

/**
 * Makes a batch of samples. Numbers become a tensor with an element for each sample; arrays and tensors of one shape are stacked. An array of
 * numbers, nested or not, is a row. Other arrays and objects are fields, which are collated one by one. Strings and other values become a
 * list.
 *
 * @example
 * ```ts
 * import { defaultCollate, device } from "holdfast";
 * const cpu = await device("cpu");
 * const samples = [
 *   { x: Float32Array.of(1, 2), y: 0, name: "a" },
 *   { x: Float32Array.of(3, 4), y: 1, name: "b" },
 * ];
 * const { x, y, name } = defaultCollate(samples);
 * console.log(x.tolist(), y.tolist(), name); // → [ [ 1, 2 ], [ 3, 4 ] ] [ 0, 1 ] [ 'a', 'b' ]
 * cpu.close();
 * ```
 */
export function defaultCollate<Sample>(
  samples: readonly Sample[],
  options: CollateOptions = {},
): Collated<Sample> {
  checkOptions("defaultCollate", options, collateOptionNames);
  if (samples.length === 0)
    throw new HoldfastError("BAD_ARGUMENT", "defaultCollate got no samples. Pass at least one.");
  return collate(samples, options, "") as Collated<Sample>;
}

/**
 * Converts the arrays of one sample to tensors, without a new axis; for loaders without batches.
 *
 * @example
 * ```ts
 * import { defaultConvert, device } from "holdfast";
 * const cpu = await device("cpu");
 * const { x, name } = defaultConvert({ x: Float32Array.of(1, 2), name: "a" }) as { x: { shape: number[] }; name: string };
 * console.log(x.shape, name); // → [ 2 ] a
 * cpu.close();
 * ```
 */
export function defaultConvert(sample: unknown, options: CollateOptions = {}): unknown {
  checkOptions("defaultConvert", options, collateOptionNames);
  if (isTyped(sample)) return fromTyped(sample, [sample.length], options);
  if (isHostArray(sample)) return fromTyped(sample.values, sample.shape, withDtype(options, sample));
  if (Array.isArray(sample)) return sample.map((field) => defaultConvert(field, options));
  if (!isRecord(sample)) return sample;
  return Object.fromEntries(
    Object.entries(sample).map(([field, value]) => [field, defaultConvert(value, options)]),
  );
}

function collate(samples: readonly unknown[], options: CollateOptions, field: string): unknown {
  const [first] = samples;
  const isSame = (isKind: (sample: unknown) => boolean): boolean => requireSame(samples, isKind, field);
  if (typeof first === "number") {
    isSame((sample) => typeof sample === "number");
    return tensor(samples as number[], { dtype: "f32", ...options });
  }
  if (typeof first === "boolean") {
    isSame((sample) => typeof sample === "boolean");
    return tensor(samples.map(Number), { ...options, dtype: "bool" });
  }
  if (first instanceof Tensor) {
    isSame((sample) => sample instanceof Tensor);
    return stack(samples as Tensor[]);
  }
  if (isTyped(first) || isHostArray(first) || isNumeric(first)) {
    isSame((sample) => isTyped(sample) || isHostArray(sample) || isNumeric(sample));
    return stackArrays(samples.map(toHostArray), options, field);
  }
  if (Array.isArray(first)) {
    isSame((sample) => Array.isArray(sample) && sample.length === first.length);
    return first.map((_, index) =>
      collate(
        samples.map((sample) => (sample as unknown[])[index]),
        options,
        `${field}[${index}]`,
      ),
    );
  }
  if (isRecord(first)) {
    const fields = Object.keys(first);
    isSame((sample) => isRecord(sample) && fields.every((name) => Object.hasOwn(sample, name)));
    return Object.fromEntries(
      fields.map((name) => [
        name,
        collate(
          samples.map((sample) => (sample as Record<string, unknown>)[name]),
          options,
          `${field}.${name}`,
        ),
      ]),
    );
  }
  return samples;
}

/** [samples, …shape] */
function stackArrays(arrays: readonly HostArray[], options: CollateOptions, field: string): Tensor {
  const [first] = arrays as [HostArray];
  const size = sizeOf(first.shape);
  for (const [index, { values, shape }] of arrays.entries()) {
    const isSame = String(shape) === String(first.shape) && values.length === size;
    if (isSame && values.constructor === first.values.constructor) continue;
    throw new HoldfastError(
      "BAD_SHAPE",
      `${describe(field)} of sample ${index} of a batch is a ${values.constructor.name} of ${values.length} elements and shape ${formatShape(shape)}, ` +
        `and that of sample 0 a ${first.values.constructor.name} of shape ${formatShape(first.shape)}. Give all samples one shape, or pass a collate function that pads them.`,
      { numbers: { sample: index } },
    );
  }
  const Typed = first.values.constructor as new (length: number) => Float32Array;
  const all = new Typed(size * arrays.length);
  for (const [index, { values }] of arrays.entries()) all.set(values as Float32Array, index * size);
  return fromTyped(all, [arrays.length, ...first.shape], withDtype(options, first));
}

function toHostArray(sample: unknown): HostArray {
  if (isHostArray(sample)) return sample;
  if (isTyped(sample)) return { values: sample, shape: [sample.length] };
  const { values, shape } = readNested(sample as number[]);
  return { values: Float32Array.from(values), shape };
}

function withDtype(options: CollateOptions, { dtype }: HostArray): CollateOptions & { dtype?: Dtype } {
  return dtype === undefined ? options : { ...options, dtype };
}

function requireSame(
  samples: readonly unknown[],
  isKind: (sample: unknown) => boolean,
  field: string,
): boolean {
  const other = samples.findIndex((sample) => !isKind(sample));
  if (other < 0) return true;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${describe(field)} of sample ${other} of a batch is of another kind than that of sample 0. Give all samples the same fields.`,
    { numbers: { sample: other } },
  );
}

function describe(field: string): string {
  return field === "" ? "The value" : `The field "${field.replace(/^\./, "")}"`;
}

function isTyped(value: unknown): value is TypedNumbers {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

function isHostArray(value: unknown): value is HostArray {
  return isRecord(value) && isTyped(value["values"]) && Array.isArray(value["shape"]);
}

/** An array of numbers, nested or not. */
function isNumeric(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((one) => typeof one === "number" || isNumeric(one))
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
