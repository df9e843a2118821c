/**
 * Row tiling: a GEMM, the row kernels that read its result and the GEMMs that read theirs run on one chunk of rows after the other, and
 * share chunk-sized buffers. So the results between them are never in memory as a whole: the logits of a language model and their
 * gradient, for example. Results that other calls read, such as each row's loss, are stored whole.
 *
 * A GEMM that sums over the rows, such as a weight gradient, adds chunk after chunk in f32; of a column sum, such as a bias gradient, each
 * chunk has partials. That is another order of the sum, so float32 steps are not tiled unless their GEMMs are tuned.
 */

import type { Runtime } from "../../runtime/index.js";
import { alignUp } from "../../units/index.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { minIntermediateShare, type TilingLimits, tilingLimits } from "../cost-model.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  maxFusionDistance,
  type Node,
  type Program,
} from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";
import { isWrittenOnce } from "../program/uses.js";
import { lifetimesOf, peakOf } from "../schedule/liveness.js";
import { type RowSlice, type RowSliced, rowSlicesOf, sliceOfRows } from "./row-slices.js";

export function tileRows(
  runtime: Runtime,
  program: Program,
  limits: TilingLimits = tilingLimits(runtime.device),
): void {
  const tiled = new Set<Node>();
  for (const node of program.nodes) {
    if (tiled.has(node)) continue;
    for (const chain of chainsFrom(program, node)) {
      const edit = editFor(runtime, program, chain, limits);
      if (!edit) continue;
      for (const member of chain.members.keys()) tiled.add(member);
      apply(program, edit);
      break;
    }
  }
}

/** The shapes of a program's GEMMs: two programs with the same ones are tiled in the same way. */
export function gemmShapesIn(calls: readonly Call[]): string {
  const shapes = calls.flatMap(({ work }) => {
    if (work.kind !== "gemm" && work.kind !== "gemm-epilogue") return [];
    const { m, n, k, batch = 1, beta = 0 } = work.problem;
    return [m, n, k, batch, beta].join();
  });
  return shapes.sort().join(" ");
}

/** Calls that can run on the same chunks of rows, in program order, and the buffers that only they access. */
interface Chain {
  readonly rows: number;
  readonly columns: number;
  readonly members: ReadonlyMap<Node, RowSliced>;
  readonly intermediates: ReadonlySet<Buffer>;
}

/** Chains that begin with a GEMM, the longest first: one with the results of row kernels in chunks, and one without. */
function chainsFrom(program: Program, node: Node): readonly Chain[] {
  const { work } = node.call;
  if (work.kind !== "gemm" && work.kind !== "gemm-epilogue") return [];
  const { m: rows, n: columns } = work.problem;
  const [first] = rowSlicesOf(work, rows);
  if (rows < 2 || !first || first.isSum) return [];
  const chains: Chain[] = [];
  for (const isLong of [true, false]) {
    const chain = grow(program, node, { rows, columns, first, isLong });
    if (chain && chain.intermediates.size !== chains[0]?.intermediates.size) chains.push(chain);
  }
  return chains;
}

interface Start {
  readonly rows: number;
  readonly columns: number;
  readonly first: RowSliced;
  /** True if results of row kernels may be intermediates too. */
  readonly isLong: boolean;
}

function grow(program: Program, start: Node, { rows, columns, first, isLong }: Start): Chain | undefined {
  const members = new Map([[start, first]]);
  const intermediates = new Set<Buffer>();
  const minBytes =
    minIntermediateShare *
    Math.max(...first.slices.filter(({ writes }) => writes).map(({ slice }) => slice.size));
  const candidates = first.slices.filter(({ writes }) => writes);
  for (const { slice } of candidates) {
    const { buffer } = slice;
    if (buffer.bytes < minBytes || !isWrittenOnce(program, buffer)) continue;
    const { readers } = program.uses(buffer);
    const writer = [...members].find(([node]) => program.uses(buffer).writers[0] === node);
    const added = readers.map((reader): [Node, RowSliced] | undefined => {
      if (program.distance(start, reader) > maxFusionDistance || reader.calls.length > 1) return undefined;
      const known = members.get(reader);
      const sliced = (known ? [known] : rowSlicesOf(reader.call.work, rows)).find((way) =>
        isDense(way, buffer, rows),
      );
      return sliced && [reader, sliced];
    });
    if (readers.length === 0 || !writer || !isDense(writer[1], buffer, rows)) continue;
    if (!added.every((member) => member !== undefined)) continue;
    intermediates.add(buffer);
    for (const [reader, sliced] of added) {
      if (members.has(reader)) continue;
      members.set(reader, sliced);
      if (isLong && reader.call.work.kind === "row")
        candidates.push(...sliced.slices.filter(({ writes }) => writes));
    }
  }
  const inOrder = new Map([...members].sort(([a], [b]) => (a.isBefore(b) ? -1 : 1)));
  const chain = { rows, columns, members: inOrder, intermediates };
  return intermediates.size > 0 && keepsRowsApart(chain) ? chain : undefined;
}

/** True if a call accesses a buffer row by row, and each byte of it belongs to one row. */
function isDense({ slices, rowsPerStep }: RowSliced, buffer: Buffer, rows: number): boolean {
  return slices.every(({ slice, stepBytes, extentBytes }) => {
    if (slice.buffer !== buffer) return true;
    return (
      slice.offset === 0 && stepBytes * (rows / rowsPerStep) === buffer.bytes && extentBytes <= stepBytes
    );
  });
}

/** True if members meet only in intermediates, and in memory of which both access each row's bytes with the row. */
function keepsRowsApart({ members, intermediates }: Chain): boolean {
  const all = [...members].flatMap(([node, { slices, rowsPerStep }]) =>
    slices
      .filter(({ slice }) => !intermediates.has(slice.buffer))
      .map((operand) => ({ node, operand, rowBytes: operand.stepBytes / rowsPerStep })),
  );
  return all.every(({ node, operand, rowBytes }) =>
    all.every((other) => {
      if (other.node === node || !operand.writes) return true;
      const isSame = rowBytes === other.rowBytes && haveSameRows(operand, other.operand);
      return isSame || areDisjoint(extentOf(operand.slice), extentOf(other.operand.slice));
    }),
  );
}

/** For operands with the same bytes per row: true if they begin at the same byte, and no row shares bytes with another. */
function haveSameRows(one: RowSlice, other: RowSlice): boolean {
  const areRows = [one, other].every(
    ({ stepBytes, extentBytes }) => stepBytes > 0 && extentBytes <= stepBytes,
  );
  return areRows && one.slice.buffer === other.slice.buffer && one.slice.offset === other.slice.offset;
}

/** The calls of the tiled chain, in the position of its last member, and the calls between its members that have to follow. */
interface Edit {
  readonly members: readonly Node[];
  readonly tiled: readonly Call[];
  readonly dependents: readonly Node[];
}

/** Undefined if the chain cannot be tiled, or does not gain by it. */
function editFor(runtime: Runtime, program: Program, chain: Chain, limits: TilingLimits): Edit | undefined {
  const chunkRows = chunkRowsOf(chain, limits);
  if (chunkRows === undefined) return undefined;
  const dependents = dependentsOf(program, chain);
  if (!dependents) return undefined;
  const members = [...chain.members.keys()];
  const edit = { members, dependents, tiled: tiledCalls(runtime, program, chain, chunkRows) };
  const [before, after] = [program.calls, callsWith(program, edit)].map(peakBytesOf) as [number, number];
  return after <= (1 - limits.minShare) * before ? edit : undefined;
}

/** Rows of a chunk: enough to keep the device busy, in chunks of almost the same size. Undefined if that is more than half the rows. */
function chunkRowsOf({ rows, columns, members }: Chain, limits: TilingLimits): number | undefined {
  const sliced = [...members.values()];
  const step = sliced.reduce((multiple, { rowsPerStep }) => lcm(multiple, rowsPerStep), limits.rowAlignment);
  const hasSum = sliced.some(({ isSum }) => isSum);
  for (const minRows of hasSum ? [limits.minSummedRows] : [limits.preferredRows, limits.minRows]) {
    const minChunkRows = alignUp(Math.max(minRows, Math.ceil(limits.minElements / columns)), step);
    const chunks = Math.floor(rows / minChunkRows);
    if (chunks >= 2) return alignUp(Math.ceil(rows / chunks), step);
  }
  return undefined;
}

/** The lowest common multiple. */
function lcm(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}

/** The calls between the members that depend on one of them; undefined if a member depends on such a call. */
function dependentsOf(program: Program, { members }: Chain): readonly Node[] | undefined {
  const nodes = [...members.keys()];
  const [first, last] = [nodes[0], nodes.at(-1)];
  const dependents = new Set<Node>();
  for (let node = first; node; node = node === last ? undefined : program.next(node)) {
    const producers = [...program.producersOf(node)];
    if (members.has(node)) {
      if (producers.some((producer) => dependents.has(producer))) return undefined;
    } else if (producers.some((producer) => members.has(producer) || dependents.has(producer)))
      dependents.add(node);
  }
  return [...dependents];
}

/** The members chunk by chunk. The chunks share buffers, and so their order is a dependency. */
function tiledCalls(runtime: Runtime, program: Program, chain: Chain, chunkRows: number): readonly Call[] {
  const { rows, members, intermediates } = chain;
  const chunkBuffers = new Map(
    [...intermediates].map((buffer) => {
      const bytes = (buffer.bytes / rows) * chunkRows;
      return [buffer, program.makeBuffer(bytes, buffer.label)];
    }),
  );
  const chunks = Math.ceil(rows / chunkRows);
  const partials = new Map<BufferSlice, Buffer>();
  for (const { slices } of members.values())
    for (const { slice, isPartial } of slices)
      if (isPartial)
        partials.set(slice, program.makeBuffer(chunks * slice.size, `${slice.buffer.label} sums`));
  const calls: Call[] = [];
  for (let chunk = 0; chunk < chunks; chunk++) {
    const from = chunk * chunkRows;
    const count = Math.min(chunkRows, rows - from);
    for (const [{ call }, { rowsPerStep, select }] of members) {
      const at = (operand: RowSlice): BufferSlice => {
        const { slice } = operand;
        const buffer = chunkBuffers.get(slice.buffer);
        if (buffer) return { buffer, offset: 0, size: (buffer.bytes / chunkRows) * count };
        const partial = partials.get(slice);
        if (partial) return { buffer: partial, offset: chunk * slice.size, size: slice.size };
        return sliceOfRows(operand, rowsPerStep, from, count);
      };
      const work = select(from, count, at);
      const isGemm = work.kind === "gemm";
      calls.push({
        ...call,
        work: isGemm ? { kind: "gemm", problem: withScratch(runtime, program, work.problem) } : work,
      });
    }
  }
  for (const [{ call }, { combine }] of members) {
    const work = combine?.(chunks, ({ slice }) => {
      const buffer = partials.get(slice);
      return buffer ? { buffer, offset: 0, size: buffer.bytes } : slice;
    });
    if (work) calls.push({ ...call, work });
  }
  return calls;
}

function callsWith(program: Program, { members, tiled, dependents }: Edit): readonly Call[] {
  const moved = new Set([...members, ...dependents]);
  const last = members.at(-1);
  return program.nodes.flatMap((node) => {
    if (node === last) return [...tiled, ...dependents.flatMap(({ calls }) => calls)];
    return moved.has(node) ? [] : node.calls;
  });
}

function peakBytesOf(calls: readonly Call[]): number {
  return peakOf(lifetimesOf({ calls: calls.map((call) => ({ call, stream: 0, after: [] })) })).bytes;
}

function apply(program: Program, { members, tiled, dependents }: Edit): void {
  const last = members.at(-1);
  if (!last) return;
  for (const call of tiled) program.insertBefore(last, call);
  for (const node of dependents.toReversed()) program.moveAfter(node, last);
  for (const member of members) program.remove(member);
}
