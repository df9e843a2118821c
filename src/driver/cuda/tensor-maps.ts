/**
 * Maps of matrices (CUDA's tensor maps): what a kernel is given instead of an address so that the device copies boxes of a matrix
 * by itself. A map is 128 bytes that libcuda encodes and nobody else reads; a launch takes them by value.
 *
 * What libcuda would reject without a reason is rejected here with one, and so is a map that goes beyond its memory, which libcuda
 * would take.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Span } from "../../units/index.js";
import { type Argument, isMemory, type Parameter, type TensorMap } from "../driver.js";
import type { Cuda } from "./calls.js";
import { mapDataType, mapFill, mapInterleave, mapPromotion, mapSwizzle } from "./constants.js";
import { OutBlock } from "./out-block.js";

export const mapBytes = 128;
/** A map begins on a multiple of this. */
export const mapAlignment = 64;

/** Memory, and the beginnings of rows and matrices in it, lie on multiples of so many bytes; so does a box's end. */
const unitBytes = 16;
/** As far as swizzled copies go. */
const maxTmaBytes = 128;
const maxTmaRows = 256;

const elements = {
  bf16: { bytes: 2, type: mapDataType.BFLOAT16 },
  f16: { bytes: 2, type: mapDataType.FLOAT16 },
  f32: { bytes: 4, type: mapDataType.FLOAT32 },
} as const;

/** Columns, rows and matrices, always: one matrix is a batch of one. */
const rank = 3;
/** What `encode` takes by address, behind each other: sizes and strides of 64 bits, boxes and steps of 32. */
const places = { sizes: 0, strides: 24, box: 40, elementStrides: 52, end: 64 } as const;

/** Rejects maps that no launch of the kernel could have. */
export function requireTensorMaps(
  kernel: string,
  parameters: readonly Parameter[],
  maps: readonly TensorMap[],
): void {
  for (const { parameter, dtype, box, ...map } of maps) {
    const what = `The map of argument ${parameter} of kernel "${kernel}"`;
    const kind = parameters[parameter];
    if (kind === undefined || !isMemory(kind)) {
      throw badArgument(`${what} is of ${kind ?? "nothing"}; a map is of a memory parameter.`);
    }
    if (maps.filter((other) => other.parameter === parameter).length > 1) {
      throw badArgument(`${what} is one of several; a parameter has one map.`);
    }
    for (const name of ["columns", "rows", "rowStride", "matrices", "matrixStride"] as const) {
      const from = parameters[map[name]];
      if (from !== "i32") {
        throw badArgument(
          `${what} takes its ${name} from argument ${map[name]}, which is ${from ?? "missing"}; it has to be i32.`,
        );
      }
    }
    const boxBytes = box.columns * elements[dtype].bytes;
    if (!(boxBytes > 0 && boxBytes <= maxTmaBytes && boxBytes % unitBytes === 0)) {
      throw badArgument(
        `${what} has boxes of ${box.columns} columns of ${dtype}, ${boxBytes} bytes; a box has a multiple of ${unitBytes} bytes, ${maxTmaBytes} at most.`,
      );
    }
    if (!(Number.isInteger(box.rows) && box.rows > 0 && box.rows <= maxTmaRows)) {
      throw badArgument(`${what} has boxes of ${box.rows} rows; a box has 1 to ${maxTmaRows}.`);
    }
  }
}

/** One parameter's map, in its place. */
export class TensorMapSlot {
  /** Which of the kernel's parameters it is. */
  readonly parameter: number;
  readonly address: number;
  readonly #cuda: Cuda;
  readonly #map: TensorMap;
  readonly #nameOf: (parameter: number) => string;
  readonly #block = new OutBlock(places.end);
  // Of what is encoded at present; no memory lies at -1.
  #memory = -1;
  #size = 0;
  #columns = 0;
  #rows = 0;
  #rowStride = 0;
  #matrices = 0;
  #matrixStride = 0;

  constructor(cuda: Cuda, map: TensorMap, address: number, nameOf: (parameter: number) => string) {
    this.parameter = map.parameter;
    this.address = address;
    this.#cuda = cuda;
    this.#map = map;
    this.#nameOf = nameOf;
    const { view } = this.#block;
    for (const [index, size] of [map.box.columns, map.box.rows, 1].entries()) {
      view.setUint32(places.box + 4 * index, size, true);
      view.setUint32(places.elementStrides + 4 * index, 1, true);
    }
  }

  /** Encodes the map of a launch with these arguments, unless it is what stands there. */
  encode(given: readonly Argument[]): void {
    const map = this.#map;
    const { address: memory, size } = given[map.parameter] as Span;
    const columns = given[map.columns] as number;
    const rows = given[map.rows] as number;
    const rowStride = given[map.rowStride] as number;
    const matrices = given[map.matrices] as number;
    const matrixStride = given[map.matrixStride] as number;
    if (
      memory === this.#memory &&
      size === this.#size &&
      columns === this.#columns &&
      rows === this.#rows &&
      rowStride === this.#rowStride &&
      matrices === this.#matrices &&
      matrixStride === this.#matrixStride
    )
      return;

    const { bytes, type } = elements[map.dtype];
    if (memory % unitBytes !== 0) {
      throw badArgument(
        `${this.#nameOf(map.parameter)} begins at 0x${memory.toString(16)}; the kernel takes it as a map, whose memory begins on a multiple of ${unitBytes} bytes.`,
      );
    }
    for (const [parameter, size] of [
      [map.columns, columns],
      [map.rows, rows],
      [map.matrices, matrices],
    ] as const) {
      if (size < 1) this.#reject(parameter, size, "it has to be 1 or more");
    }
    this.#requireStride(map.rowStride, rowStride, bytes);
    const isOne = matrices === 1 || matrixStride === 0;
    if (!isOne) this.#requireStride(map.matrixStride, matrixStride, bytes);
    // The device asks nobody else how far it may read.
    const end = ((isOne ? 0 : (matrices - 1) * matrixStride) + (rows - 1) * rowStride + columns) * bytes;
    if (end > size) {
      throw badArgument(
        `${this.#nameOf(map.parameter)} has ${size} bytes; the kernel takes it as a map of ${isOne ? 1 : matrices} × ${rows} × ${columns} elements of ${map.dtype}, the last of which ends ${end} bytes behind its beginning.`,
      );
    }

    const block = this.#block;
    block.setU64(columns, places.sizes);
    block.setU64(rows, places.sizes + 8);
    block.setU64(isOne ? 1 : matrices, places.sizes + 16);
    block.setU64(rowStride * bytes, places.strides);
    // Nobody goes on to a second matrix where there is one, but the stride has to be one that libcuda takes.
    block.setU64((isOne ? rowStride : matrixStride) * bytes, places.strides + 8);
    // Whatever a call that fails leaves behind, it is no map.
    this.#memory = -1;
    this.#cuda.driver.cuTensorMapEncodeTiled(
      this.address,
      type,
      rank,
      memory,
      block.address + places.sizes,
      block.address + places.strides,
      block.address + places.box,
      block.address + places.elementStrides,
      mapInterleave.NONE,
      mapSwizzle["128B"],
      mapPromotion.L2_256B,
      mapFill.NONE,
    );
    this.#memory = memory;
    this.#size = size;
    this.#columns = columns;
    this.#rows = rows;
    this.#rowStride = rowStride;
    this.#matrices = matrices;
    this.#matrixStride = matrixStride;
  }

  free(): void {
    this.#block.free();
  }

  #requireStride(parameter: number, stride: number, bytes: number): void {
    if (stride > 0 && (stride * bytes) % unitBytes === 0) return;
    this.#reject(
      parameter,
      stride,
      `it has to be a multiple of ${unitBytes / bytes} elements of ${this.#map.dtype}, ${unitBytes} bytes`,
    );
  }

  #reject(parameter: number, value: number, rule: string): never {
    throw badArgument(
      `${this.#nameOf(parameter)} is ${value}; the map of argument ${this.parameter} is made with it, for which ${rule}.`,
    );
  }
}

function badArgument(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", message);
}
