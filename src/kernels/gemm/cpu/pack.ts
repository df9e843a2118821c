/**
 * Packing: copies op(A) and op(B) into panels that the microkernel reads contiguously. A block of the launch is a few neighbouring
 * panels, those of A first.
 */

import type { KernelSource, Local } from "../../../driver/index.js";
import { advance, call, forRange, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { Element } from "./element.js";
import { packFunction } from "./pack-panel.js";
import { tileColumns } from "./tile.js";

/** Neighbouring panels share cache lines of the matrix: panels per block, and k per slice. */
export const panelsPerBlock = 4;
const sliceDepth = 16;

/** The parameters of the pack kernel, in order. Strides and offsets are in bytes. */
export const packParameters = {
  a: "in",
  b: "in",
  scratch: "out",
  aKBytes: "u32",
  aMnBytes: "u32",
  aBatchBytes: "u32",
  aPackedBatchBytes: "u32",
  aGroups: "u32",
  aBlocks: "u32",
  bKBytes: "u32",
  bMnBytes: "u32",
  bBatchBytes: "u32",
  bPackedBatchBytes: "u32",
  bGroups: "u32",
  bOffset: "u32",
  m: "u32",
  n: "u32",
  k: "u32",
} as const;

/** One operand; `groups` of panels make one matrix of the batch. */
interface PackedOperand {
  readonly pack: string;
  readonly matrix: Local;
  readonly kBytes: Local;
  readonly mnBytes: Local;
  readonly batchBytes: Local;
  readonly packedBatchBytes: Local;
  readonly groups: Local;
  /** Rows of op(A) or columns of op(B), in all and in a panel. */
  readonly size: Local;
  readonly width: number;
}

export function packKernel(element: Element): KernelSource {
  const widths = { a: element.tile.rows, b: tileColumns(element) };
  const functions = [packFunction("packA", element, widths.a), packFunction("packB", element, widths.b)];
  const name = `gemm_pack_${element.dtype}`;
  return wasmKernel(name, packParameters, functions, (code, args) => {
    const { firstBlock: block, endBlock, scratch, k } = args;
    const locals = localsOf(
      code,
      "i32",
      ...(["group", "batch", "first", "end", "row", "slice", "depth", "count", "index"] as const),
      ...(["matrix", "packed", "from", "to"] as const),
    );
    const { group, batch, first, end, row, slice, depth, count, index, matrix, packed, from, to } = locals;
    const a: PackedOperand = {
      pack: "packA",
      matrix: args.a,
      kBytes: args.aKBytes,
      mnBytes: args.aMnBytes,
      batchBytes: args.aBatchBytes,
      packedBatchBytes: args.aPackedBatchBytes,
      groups: args.aGroups,
      size: args.m,
      width: widths.a,
    };
    const b: PackedOperand = {
      pack: "packB",
      matrix: args.b,
      kBytes: args.bKBytes,
      mnBytes: args.bMnBytes,
      batchBytes: args.bBatchBytes,
      packedBatchBytes: args.bPackedBatchBytes,
      groups: args.bGroups,
      size: args.n,
      width: widths.b,
    };

    /** Packs a slice of the panel that begins at `row`. */
    const packSlice = ({ pack, kBytes, mnBytes, size, width }: PackedOperand): void => {
      code.get(size).get(row).op("i32.sub").set(count);
      limitTo(code, count, width);
      setToElement(code, from, matrix, row, mnBytes);
      setToElement(code, from, from, slice, kBytes);
      code.get(row).get(k).op("i32.mul").get(slice).i32(width).op("i32.mul").op("i32.add").set(index);
      setToElement(code, to, packed, index, element.bytes);
      call(code, pack, from, kBytes, mnBytes, count, depth, to);
    };
    /** Packs the `group`-th group of panels of an operand; its packed panels begin at `packed`. */
    const packGroup = (operand: PackedOperand): void => {
      const groupSize = panelsPerBlock * operand.width;
      code.get(group).get(operand.groups).op("i32.div_u").set(batch);
      code.get(group).get(operand.groups).op("i32.rem_u").i32(groupSize).op("i32.mul").tee(first);
      code.i32(groupSize).op("i32.add").set(end);
      limitTo(code, end, operand.size);
      setToElement(code, matrix, operand.matrix, batch, operand.batchBytes);
      setToElement(code, packed, packed, batch, operand.packedBatchBytes);
      code.i32(0).set(slice);
      forRange(code, slice, k, sliceDepth, () => {
        code.get(k).get(slice).op("i32.sub").set(depth);
        limitTo(code, depth, sliceDepth);
        code.get(first).set(row);
        forRange(code, row, end, operand.width, () => packSlice(operand));
      });
    };

    forRange(code, block, endBlock, 1, () => {
      code.get(scratch).set(packed);
      code.get(block).set(group);
      code.get(block).get(args.aBlocks).op("i32.lt_u");
      code.if(
        () => packGroup(a),
        () => {
          advance(code, packed, args.bOffset);
          code.get(block).get(args.aBlocks).op("i32.sub").set(group);
          packGroup(b);
        },
      );
    });
  });
}
