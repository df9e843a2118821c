/**
 * The structs that CUDA functions take by address, each as a list of fields. Sizes and offsets follow C's layout rules:
 * each field is aligned to its size.
 */

import { alignUp } from "../../units/index.js";

const scalarBytes = { u8: 1, u16: 2, i32: 4, u32: 4, f32: 4, u64: 8, address: 8 } as const;

type Scalar = keyof typeof scalarBytes;

/** Name, type, and the C name if it differs. An opaque field is a number of bytes, in 8-byte words. */
type Field = readonly [name: string, type: Scalar | { readonly opaque: number }, inC?: string];

type ScalarFields<F extends readonly Field[]> = Extract<F[number], readonly [string, Scalar, ...unknown[]]>;

/** The numeric fields of a struct; opaque fields are accessed by offset. */
export type StructValues<F extends readonly Field[]> = { [Name in ScalarFields<F>[0]]: number };

export class Struct<const F extends readonly Field[]> {
  /** The C name. */
  readonly name: string;
  readonly fields: F;
  readonly size: number;
  readonly offsets: Readonly<Record<F[number][0], number>>;

  constructor(name: string, fields: F) {
    this.name = name;
    this.fields = fields;
    const offsets: Record<string, number> = {};
    let end = 0;
    let alignment = 1;
    for (const [field, type] of fields) {
      const { size, aligned } = measure(type);
      offsets[field] = alignUp(end, aligned);
      end = alignUp(end, aligned) + size;
      alignment = Math.max(alignment, aligned);
    }
    this.size = alignUp(end, alignment);
    this.offsets = offsets as Record<F[number][0], number>;
  }

  /** Writes a whole struct; omitted fields are 0. */
  write(view: DataView, values: Partial<StructValues<F>>, start = 0): void {
    for (let offset = 0; offset < this.size; offset++) view.setUint8(start + offset, 0);
    for (const [field, type] of this.fields) {
      const value = (values as Readonly<Record<string, number | undefined>>)[field];
      if (value === undefined || typeof type === "object") continue;
      writeScalar(view, type, start + this.#fieldOffset(field), value);
    }
  }

  read(view: DataView, start = 0): StructValues<F> {
    const values: Record<string, number> = {};
    for (const [field, type] of this.fields) {
      if (typeof type === "string") values[field] = readScalar(view, type, start + this.#fieldOffset(field));
    }
    return values as StructValues<F>;
  }

  #fieldOffset(field: string): number {
    return (this.offsets as Readonly<Record<string, number>>)[field] ?? 0;
  }
}

function measure(type: Scalar | { readonly opaque: number }): { size: number; aligned: number } {
  if (typeof type === "object") return { size: type.opaque, aligned: 8 };
  return { size: scalarBytes[type], aligned: scalarBytes[type] };
}

function writeScalar(view: DataView, type: Scalar, offset: number, value: number): void {
  if (type === "u8") view.setUint8(offset, value);
  else if (type === "u16") view.setUint16(offset, value, true);
  else if (type === "i32") view.setInt32(offset, value, true);
  else if (type === "u32") view.setUint32(offset, value, true);
  else if (type === "f32") view.setFloat32(offset, value, true);
  else view.setBigUint64(offset, BigInt(value), true);
}

function readScalar(view: DataView, type: Scalar, offset: number): number {
  if (type === "u8") return view.getUint8(offset);
  if (type === "u16") return view.getUint16(offset, true);
  if (type === "i32") return view.getInt32(offset, true);
  if (type === "u32") return view.getUint32(offset, true);
  if (type === "f32") return view.getFloat32(offset, true);
  return Number(view.getBigUint64(offset, true));
}

export const structs = {
  /** The kind and location of memory that `cuMemCreate` allocates. */
  allocationProperty: new Struct("CUmemAllocationProp", [
    ["type", "i32"],
    ["requestedHandleTypes", "i32"],
    ["locationType", "i32", "location.type"],
    ["locationId", "i32", "location.id"],
    ["win32HandleMetaData", "address"],
    ["compressionType", "u8", "allocFlags.compressionType"],
    ["gpuDirectRDMACapable", "u8", "allocFlags.gpuDirectRDMACapable"],
    ["usage", "u16", "allocFlags.usage"],
    ["reserved", "u32", "allocFlags.reserved"],
  ]),
  /** Access rights to mapped memory. */
  access: new Struct("CUmemAccessDesc", [
    ["locationType", "i32", "location.type"],
    ["locationId", "i32", "location.id"],
    ["flags", "i32"],
  ]),
  /** A launch configuration. */
  launchConfig: new Struct("CUlaunchConfig", [
    ["gridX", "u32", "gridDimX"],
    ["gridY", "u32", "gridDimY"],
    ["gridZ", "u32", "gridDimZ"],
    ["blockX", "u32", "blockDimX"],
    ["blockY", "u32", "blockDimY"],
    ["blockZ", "u32", "blockDimZ"],
    ["sharedBytes", "u32", "sharedMemBytes"],
    ["stream", "address", "hStream"],
    ["attributes", "address", "attrs"],
    ["count", "u32", "numAttrs"],
  ]),
  /** A launch attribute; its value is a union. */
  launchAttribute: new Struct("CUlaunchAttribute", [
    ["id", "i32"],
    ["value", { opaque: 64 }],
  ]),
  /** An algorithm that cuBLASLt proposes. */
  heuristicResult: new Struct("cublasLtMatmulHeuristicResult_t", [
    ["algo", { opaque: 64 }],
    ["workspaceSize", "u64"],
    ["state", "i32"],
    ["wavesCount", "f32"],
    ["reserved", { opaque: 16 }],
  ]),
  /** An address range in NVTX. */
  memoryRange: new Struct("nvtxMemVirtualRangeDesc_t", [
    ["size", "u64"],
    ["ptr", "address"],
  ]),
  /** A memory pool in NVTX. */
  memoryPool: new Struct("nvtxMemHeapDesc_t", [
    ["extCompatID", "u16"],
    ["structSize", "u16"],
    ["reserved0", "u32"],
    ["usage", "u32"],
    ["type", "u32"],
    ["typeSpecificDescSize", "u64"],
    ["typeSpecificDesc", "address"],
    ["category", "u32"],
    ["messageType", "u32"],
    ["message", "address"],
  ]),
  /** Regions of a pool that become live. */
  memoryRegions: new Struct("nvtxMemRegionsRegisterBatch_t", [
    ["extCompatID", "u16"],
    ["structSize", "u16"],
    ["regionType", "u32"],
    ["heap", "address"],
    ["regionCount", "u64"],
    ["regionDescElementSize", "u64"],
    ["regionDescElements", "address"],
    ["regionHandleElementsOut", "address"],
  ]),
  /** Regions that die. */
  memoryReferences: new Struct("nvtxMemRegionsUnregisterBatch_t", [
    ["extCompatID", "u16"],
    ["structSize", "u16"],
    ["refType", "u32"],
    ["refCount", "u64"],
    ["refElementSize", "u64"],
    ["refElements", "address"],
  ]),
} as const;
