/**
 * Sums of products: GEMMs that add to the result of another GEMM, and elementwise additions of the results of GEMMs, become one launch that
 * runs over all of K. An example is LoRA: x·Wᵀ + t·Bᵀ, and the gradient of an input that several projections share.
 *
 * The sum is rounded once, so this is for results of 16 bits in steps whose GEMMs may round differently from eager code.
 */

import { factsOf } from "../../ir/index.js";
import { sumCandidates } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeAddend, describeGemm } from "../autotune/gemm-desc.js";
import type { GemmSumCall, SlicedAddend } from "../program/kinds/gemm-sum.js";
import {
  type BufferSlice,
  type Call,
  type GemmCall,
  isSameSlice,
  latestPhase,
  maxFusionDistance,
  type Node,
  type Program,
} from "../program/program.js";

/** A sum as one call, and what it replaces. */
export interface FusedSum {
  readonly work: GemmSumCall;
  readonly gemms: readonly GemmCall[];
  /** Elementwise additions of results. */
  readonly additions: readonly Call[];
}

/** `selector` decides which sums are faster than their calls: it gets all candidates at once, to measure them together. */
export function fuseGemmSums(
  runtime: Runtime,
  program: Program,
  selector: (candidates: readonly FusedSum[]) => (candidate: FusedSum) => boolean,
): void {
  const candidates = [...sumsIn(runtime, program)];
  const isFaster = selector(candidates.map(([, { fused }]) => fused));
  for (const [last, { fused, nodes }] of candidates) {
    if (!isFaster(fused)) continue;
    const calls = nodes.map(({ call }) => call);
    const op = [...new Set(calls.map((call) => call.op))].join(" + ");
    for (const node of nodes) if (node !== last) program.remove(node);
    program.replace(last, { op, phase: latestPhase(calls), work: fused.work });
  }
}

/** A product, and the GEMM that computes it. */
type Product = SlicedAddend & { readonly gemm: GemmCall };

/** Products that are added up by these calls. The last call has the sum in `c`. */
interface Sum {
  readonly nodes: readonly Node[];
  readonly products: readonly Product[];
  readonly additions: readonly Call[];
  readonly c: GemmCall["problem"]["c"];
}

interface Candidate {
  readonly nodes: readonly Node[];
  readonly fused: FusedSum;
}

/** The sums that one launch can compute, by their last call. */
function sumsIn(runtime: Runtime, program: Program): ReadonlyMap<Node, Candidate> {
  const sums = new Map<Node, Sum>();
  const candidates = new Map<Node, Candidate>();
  for (const node of program.nodes) {
    const sum = sumAt(program, node, sums);
    if (!sum) continue;
    sums.set(node, sum);
    const fused = sum.products.length > 1 ? fusedSum(runtime, sum) : undefined;
    if (!fused) continue;
    // A longer sum replaces those that it contains.
    for (const part of sum.nodes) candidates.delete(part);
    candidates.set(node, { nodes: sum.nodes, fused });
  }
  return candidates;
}

/** The sum that a call completes; of a plain GEMM, its one product. */
function sumAt(program: Program, node: Node, sums: ReadonlyMap<Node, Sum>): Sum | undefined {
  const { call } = node;
  if (node.calls.length > 1 || call.isRematerialized) return undefined;
  const sum =
    call.work.kind === "gemm"
      ? afterGemm(program, node, call.work, sums)
      : afterAddition(program, node, sums);
  return sum && keepsFactors(program, sum, node) ? sum : undefined;
}

function afterGemm(
  program: Program,
  node: Node,
  gemm: GemmCall,
  sums: ReadonlyMap<Node, Sum>,
): Sum | undefined {
  const { problem } = gemm;
  const { a, b, c, k, alpha = 1, beta = 0, activation, batch = 1 } = problem;
  if (alpha !== 1 || activation || batch !== 1 || !isHalf(problem) || c.slice.buffer.storage)
    return undefined;
  const own: Sum = { nodes: [node], products: [{ a, b, k, gemm }], additions: [], c };
  if (beta === 0) return own;
  const before = beta === 1 ? readSum(program, node, c.slice, sums) : undefined;
  if (!before || before.c.rowStride !== c.rowStride) return undefined;
  return {
    ...own,
    nodes: [...before.nodes, node],
    products: [...before.products, ...own.products],
    additions: before.additions,
  };
}

/** The elementwise addition of two results, each of them contiguous. */
function afterAddition(program: Program, node: Node, sums: ReadonlyMap<Node, Sum>): Sum | undefined {
  const { call } = node;
  const operands = additionOf(call);
  if (!operands) return undefined;
  const [one, other] = operands.terms.map((slice) => readSum(program, node, slice, sums));
  if (!one || !other || one === other) return undefined;
  const n = nOf(one);
  if (n !== nOf(other) || ![one, other].every(({ c }) => c.rowStride === n)) return undefined;
  return {
    nodes: inOrder([...one.nodes, ...other.nodes, node]),
    products: [...one.products, ...other.products],
    additions: [...one.additions, ...other.additions, call],
    c: { ...one.c, slice: operands.result },
  };
}

const nOf = ({ products }: Sum): number => products[0]?.gemm.problem.n ?? 0;

/** The sum that a call reads in a slice of step memory, if nothing else reads it. */
function readSum(
  program: Program,
  reader: Node,
  slice: BufferSlice,
  sums: ReadonlyMap<Node, Sum>,
): Sum | undefined {
  const { writers, readers } = program.uses(slice.buffer);
  const writer = writers.findLast((other) => other.isBefore(reader));
  const sum = writer && sums.get(writer);
  if (!sum || slice.buffer.storage || !isSameSlice(sum.c.slice, slice)) return undefined;
  const overwrites = reader.accesses.some((access) => access.writes && isSameSlice(access.slice, slice));
  const isReadByOther = readers.some(
    (other) => other !== reader && writer.isBefore(other) && !(overwrites && reader.isBefore(other)),
  );
  return isReadByOther ? undefined : sum;
}

/** The operands of a call that adds two contiguous arrays of 16-bit floats. */
function additionOf({
  work,
}: Call): { readonly terms: readonly BufferSlice[]; readonly result: BufferSlice } | undefined {
  if (work.kind !== "row" || work.scalars.length > 0 || work.iteration.outer.length > 0) return undefined;
  const { inputs, outputs, stages } = work.kernel;
  const [stage] = stages;
  const dtypes = [...inputs, ...outputs.map(({ dtype }) => dtype)];
  if (
    inputs.length !== 2 ||
    outputs.length !== 1 ||
    stages.length !== 1 ||
    !factsOf(work.kernel).isElementwise
  )
    return undefined;
  if (!dtypes.every((dtype) => dtype === dtypes[0]) || !(dtypes[0] === "bf16" || dtypes[0] === "f16"))
    return undefined;
  const value = stage?.value;
  const isSum =
    value?.kind === "binary" &&
    value.op === "add" &&
    [value.a, value.b].every((term) => term.kind === "load" && !term.at) &&
    value.a !== value.b;
  if (!isSum || work.iteration.row.strides.some((stride) => stride !== 1)) return undefined;
  const [one, other, result] = work.operands;
  return one && other && result ? { terms: [one, other], result } : undefined;
}

const isHalf = ({ dtype, resultDtype = dtype }: GemmCall["problem"]): boolean =>
  (dtype === "bf16" || dtype === "f16") && resultDtype === dtype;

const inOrder = (nodes: readonly Node[]): readonly Node[] =>
  nodes.toSorted((a, b) => (a.isBefore(b) ? -1 : 1));

/** True if the factors of all products are unchanged at the last call, which computes the sum, and are apart from its result. */
function keepsFactors(program: Program, { nodes, products, c }: Sum, last: Node): boolean {
  const [first] = nodes;
  if (!first || program.distance(first, last) > maxFusionDistance) return false;
  const results = new Set(
    [c, ...products.map(({ gemm }) => gemm.problem.c)].map(({ slice }) => slice.buffer),
  );
  return nodes.every((node) =>
    factorsOf(node.call).every(
      ({ buffer }) =>
        !results.has(buffer) &&
        !program.uses(buffer).writers.some((writer) => node.isBefore(writer) && !last.isBefore(writer)),
    ),
  );
}

/** What a GEMM reads, without the values that it adds to. */
function factorsOf({ work }: Call): readonly BufferSlice[] {
  if (work.kind !== "gemm") return [];
  const { a, b, bias } = work.problem;
  return [a.slice, b.slice, ...(bias ? [bias] : [])];
}

/** The sum as one call: the product with the largest K, to which the others are added. Undefined if no kernel computes it. */
function fusedSum(runtime: Runtime, { products, additions, c }: Sum): FusedSum | undefined {
  const biased = products.filter(({ gemm }) => gemm.problem.bias);
  const [main, ...others] = products.toSorted((one, other) => other.k - one.k);
  if (!main || biased.length > 1) return undefined;
  const { bias: _, biasDtype: __, scratch: ___, algorithm: ____, ...plain } = main.gemm.problem;
  const { bias, biasDtype } = biased[0]?.gemm.problem ?? {};
  const problem = { ...plain, c, beta: 0, ...(bias && { bias }), ...(biasDtype && { biasDtype }) };
  const addends = others.map(({ a, b, k }) => ({ a, b, k }));
  const hasShape = products.every(
    ({ gemm: { problem: one } }) => one.m === plain.m && one.n === plain.n && one.dtype === plain.dtype,
  );
  if (!hasShape || sumCandidates(runtime, describeGemm(problem), addends.map(describeAddend)) === 0)
    return undefined;
  return { work: { kind: "gemm-sum", problem, addends }, gemms: products.map(({ gemm }) => gemm), additions };
}
