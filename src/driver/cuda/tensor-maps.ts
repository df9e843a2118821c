/**
 * CUDA tensor maps: a kernel takes one instead of an address, so that the device's TMA unit copies tiles of a matrix. A
 * map is 128 opaque bytes that libcuda encodes; a launch passes it by value.
 *
 * Arguments that libcuda would reject without a reason are rejected here with one. So is a map that exceeds its memory,
 * which libcuda would accept.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Span } from "../../units/index.js";
import { type Argument, isMemory, type Parameter, type TensorMap } from "../driver.js";
import type { Cuda } from "./calls.js";
import { mapDataType, mapFill, mapInterleave, mapPromotion, mapSwizzle } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";

export const mapBytes = 128;
/** Alignment of a map. */
export const mapAlignment = 64;

/** Alignment in bytes of the memory, its rows and its matrices, and of a tile's row length. */
const unitBytes = 16;
/** The maximum for swizzled copies. */
const maxTmaBytes = 128;
const maxTmaRows = 256;

const elements = {
  bf16: { bytes: 2, type: mapDataType.BFLOAT16 },
  f16: { bytes: 2, type: mapDataType.FLOAT16 },
  f32: { bytes: 4, type: mapDataType.FLOAT32 },
  tf32: { bytes: 4, type: mapDataType.TFLOAT32 },
} as const;

/** Columns, rows and matrices; a single matrix is a batch of 1. */
const rank = 3;
/**
 * Offsets of the arrays that `encode` passes by address: 64-bit sizes and strides, 32-bit boxes and element strides.
 */
const offsets = { sizes: 0, strides: 24, box: 40, elementStrides: 52, end: 64 } as const;

/** Rejects maps that no launch of the kernel could use. */
export function requireTensorMaps(
  kernel: string,
  parameters: readonly Parameter[],
  maps: readonly TensorMap[],
): void {
  for (const { parameter, dtype, box, ...map } of maps) {
    const what = `The map of argument ${parameter} of kernel "${kernel}"`;
    const kind = parameters[parameter];
    if (kind === undefined || !isMemory(kind)) {
      throw badArgument(`${what} is for ${kind ?? "nothing"}; a map needs a memory parameter.`);
    }
    if (maps.filter((other) => other.parameter === parameter).length > 1) {
      throw badArgument(`${what} is a duplicate; a parameter has one map.`);
    }
    for (const name of ["columns", "rows", "rowStride", "matrices", "matrixStride"] as const) {
      const from = parameters[map[name]];
      if (from !== "i32") {
        throw badArgument(
          `${what} takes its ${name} from argument ${map[name]}, which is ${from ?? "missing"}; it must be i32.`,
        );
      }
    }
    const boxBytes = box.columns * elements[dtype].bytes;
    if (!(boxBytes > 0 && boxBytes <= maxTmaBytes && boxBytes % unitBytes === 0)) {
      throw badArgument(
        `${what} has boxes of ${box.columns} columns of ${dtype}, ${boxBytes} bytes; a box row must be a multiple of ${unitBytes} bytes, up to ${maxTmaBytes}.`,
      );
    }
    if (!(Number.isInteger(box.rows) && box.rows > 0 && box.rows <= maxTmaRows)) {
      throw badArgument(`${what} has boxes of ${box.rows} rows; a box needs 1 to ${maxTmaRows}.`);
    }
  }
}

/** The slot of one parameter's tensor map. */
export class TensorMapSlot {
  /** Index of the kernel's parameter. */
  readonly parameter: number;
  readonly address: number;
  readonly #cuda: Cuda;
  readonly #map: TensorMap;
  readonly #describeArgument: (parameter: number) => string;
  readonly #block = new NativeBuffer(offsets.end);
  // The currently encoded map; -1 is no valid address.
  #memory = -1;
  #size = 0;
  #columns = 0;
  #rows = 0;
  #rowStride = 0;
  #matrices = 0;
  #matrixStride = 0;

  constructor(cuda: Cuda, map: TensorMap, address: number, describeArgument: (parameter: number) => string) {
    this.parameter = map.parameter;
    this.address = address;
    this.#cuda = cuda;
    this.#map = map;
    this.#describeArgument = describeArgument;
    const { view } = this.#block;
    for (const [index, size] of [map.box.columns, map.box.rows, 1].entries()) {
      view.setUint32(offsets.box + 4 * index, size, true);
      view.setUint32(offsets.elementStrides + 4 * index, 1, true);
    }
  }

  /** Encodes the map for a launch with these arguments, unless it is already encoded. */
  encode(args: readonly Argument[]): void {
    const map = this.#map;
    const { address: memory, size } = args[map.parameter] as Span;
    const columns = args[map.columns] as number;
    const rows = args[map.rows] as number;
    const rowStride = args[map.rowStride] as number;
    const matrices = args[map.matrices] as number;
    const matrixStride = args[map.matrixStride] as number;
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
        `${this.#describeArgument(map.parameter)} starts at 0x${memory.toString(16)}; the kernel takes it as a tensor map, whose memory must be aligned to ${unitBytes} bytes.`,
      );
    }
    for (const [parameter, size] of [
      [map.columns, columns],
      [map.rows, rows],
      [map.matrices, matrices],
    ] as const) {
      if (size < 1) this.#reject(parameter, size, "it must be 1 or more");
    }
    this.#requireStride(map.rowStride, rowStride, bytes);
    const isSingle = matrices === 1 || matrixStride === 0;
    if (!isSingle) this.#requireStride(map.matrixStride, matrixStride, bytes);
    // The device does not check bounds beyond those of the map.
    const end = ((isSingle ? 0 : (matrices - 1) * matrixStride) + (rows - 1) * rowStride + columns) * bytes;
    if (end > size) {
      throw badArgument(
        `${this.#describeArgument(map.parameter)} has ${size} bytes; the kernel takes it as a tensor map of ${isSingle ? 1 : matrices} × ${rows} × ${columns} elements of ${map.dtype}, which needs ${end} bytes.`,
      );
    }

    const block = this.#block;
    block.setU64(columns, offsets.sizes);
    block.setU64(rows, offsets.sizes + 8);
    block.setU64(isSingle ? 1 : matrices, offsets.sizes + 16);
    block.setU64(rowStride * bytes, offsets.strides);
    // The stride is unused with a single matrix, but libcuda still validates it.
    block.setU64((isSingle ? rowStride : matrixStride) * bytes, offsets.strides + 8);
    // If the call fails, the slot holds no valid map.
    this.#memory = -1;
    this.#cuda.driver.cuTensorMapEncodeTiled(
      this.address,
      type,
      rank,
      memory,
      block.address + offsets.sizes,
      block.address + offsets.strides,
      block.address + offsets.box,
      block.address + offsets.elementStrides,
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
      `it must be a multiple of ${unitBytes / bytes} elements of ${this.#map.dtype}, ${unitBytes} bytes`,
    );
  }

  #reject(parameter: number, value: number, rule: string): never {
    throw badArgument(
      `${this.#describeArgument(parameter)} is ${value}; the tensor map of argument ${this.parameter} uses it, and ${rule}.`,
    );
  }
}

function badArgument(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", message);
}
