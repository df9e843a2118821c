/**
 * The reads and writes of a call, computed for the verifier only. It shares no code with program/kinds, which the passes, the scheduler
 * and the planner use. So a plan that follows from a wrong effect there is rejected here.
 *
 * The effects of row and column kernels follow from the loads and stores of each stage in the kernel IR. Those of other kernels follow
 * from the declared direction of each parameter. The code of GEMMs, attention, convolutions, scatters and multi-tensor reductions is not in the
 * IR, so their operands' names are trusted: a GEMM reads A, B and the bias, writes C and its scratch memory, and reads C if beta is not 0.
 */

import { dtypes, type Expression, type Iteration, type RowKernel, subexpressionsOf } from "../../ir/index.js";
import type {
  Access,
  BufferSlice,
  Call,
  ChunkedReduceCall,
  ColumnCall,
  GemmCall,
  GemmEpilogueCall,
  LaunchCall,
  LoopCall,
  RowCall,
  Work,
} from "../program/program.js";

/** The reads and writes of a call, and of each kernel that runs concurrently with others in its launch. */
export interface Effects {
  readonly accesses: readonly Access[];
  /** Empty if the launch runs one kernel. Scratch memory that all kernels share counts as another member. */
  readonly members: readonly (readonly Access[])[];
}

export function effectsOf({ work }: Call): Effects {
  const members = concurrentMembers(work);
  return members ? { accesses: members.flat(), members } : { accesses: effectsOfKernel(work), members: [] };
}

/** What a call's kernel reads before the grid dependency wait even if it is not told to. */
export function earlyReadsOf({ work }: Call): readonly BufferSlice[] {
  if (work.kind !== "launch") return [];
  const { kernel, arguments: values } = work;
  return (kernel.early ?? []).flatMap((index) => {
    const value = values[index];
    return typeof value === "object" ? [value] : [];
  });
}

function concurrentMembers(work: Work): readonly (readonly Access[])[] | undefined {
  switch (work.kind) {
    case "combo":
      return work.rows.map(rowEffects);
    case "grouped-gemm":
      return work.problems.map(gemmEffects);
    case "partial-reduce":
      return [...work.columns.map((member) => columnEffects(member).filter(isRead)), [write(work.scratch)]];
    case "grouped-reduce": {
      const { columns, partials, scratch } = work;
      return [
        ...(partials
          ? [
              [read(partials.scratch)],
              ...partials.columns.map((member) => columnEffects(member).filter((access) => !isRead(access))),
            ]
          : []),
        ...columns.map(columnEffects),
        ...(scratch ? [[write(scratch)]] : []),
      ];
    }
    case "grouped-scatter": {
      const { scatters, scratch } = work;
      return [...scatters.map(effectsOfKernel), ...(scratch.length > 0 ? [scratch.map(write)] : [])];
    }
    default:
      return undefined;
  }
}

function effectsOfKernel(work: Work): readonly Access[] {
  switch (work.kind) {
    case "row":
      return rowEffects(work);
    case "column":
      return columnEffects(work);
    case "gemm":
      return gemmEffects(work.problem);
    case "gemm-epilogue":
      return epilogueEffects(work);
    case "gemm-prologue": {
      // A is in shared memory.
      const computed = work.rows.operands[work.activations];
      const isStored = ({ slice }: Access): boolean => !computed || !isSame(slice, computed);
      return [...rowEffects(work.rows), ...work.problems.flatMap(gemmEffects)].filter(isStored);
    }
    case "gemm-sum":
      return [
        ...work.addends.flatMap(({ a, b }) => [read(a.slice), read(b.slice)]),
        ...gemmEffects(work.problem),
      ];
    case "launch":
      return parameterEffects(work);
    case "attention": {
      const written = writtenByAttention[work.direction];
      return Object.entries(work.operands).map(([name, slice]) =>
        written.has(name) ? write(slice) : read(slice),
      );
    }
    case "convolution": {
      const result = writtenByConvolution[work.shape.direction];
      return Object.entries(work.operands).map(([name, slice]) =>
        name === result || name === "scratch" ? write(slice) : read(slice),
      );
    }
    case "scatter": {
      const { index, source, target, scratch, shape } = work;
      const sums = shape.overwrites ? write(target) : { ...write(target), reads: true };
      return [read(index), read(source), ...scratch.map(write), sums];
    }
    case "row-map":
      return [...work.tables.map(({ index }) => read(index)), write(work.map), write(work.owners)];
    case "chunked-reduce":
      return [...work.vectors.flatMap(vectorEffects), write(work.results)];
    case "loop":
      return loopEffects(work);
    case "fill":
      return [write(work.target)];
    case "copy":
      return [read(work.source), write(work.target)];
    default:
      return [];
  }
}

const writtenByAttention: Readonly<Record<"forward" | "backward", ReadonlySet<string>>> = {
  forward: new Set(["out", "probabilities", "statistics", "keptBits"]),
  backward: new Set(["queryGradient", "keyGradient", "valueGradient", "scoreGradient", "deltas"]),
};

const writtenByConvolution = { forward: "y", "input-gradient": "x", "weight-gradient": "weight" } as const;

/**
 * The effects of all iterations of a loop on its operands. What an iteration reads after the loop wrote it, in this iteration or in an
 * earlier one, does not count as read.
 */
function loopEffects({ count, operands, body }: LoopCall): readonly Access[] {
  const inBody = body.flatMap((work) => effectsOfKernel(work));
  const strideOf = ({ buffer }: BufferSlice): number => operands[-1 - buffer.id]?.stride ?? 0;
  /** The number of iterations, from the first one on, that read bytes of before the loop. */
  const iterationsThatRead = (slice: BufferSlice, position: number): number => {
    const stride = strideOf(slice);
    const writtenBy = (accesses: readonly Access[]): readonly BufferSlice[] =>
      unionOf(
        accesses.flatMap(({ slice: other, writes }) =>
          writes && other.buffer === slice.buffer ? other : [],
        ),
      );
    const distances = [
      ...writtenBy(inBody.slice(0, position)).map((range) => distanceTo(slice, range, stride, 0)),
      ...writtenBy(inBody).map((range) => distanceTo(slice, range, stride, 1)),
    ];
    return Math.min(count, ...distances.flatMap((distance) => distance ?? []));
  };
  return inBody.flatMap(({ slice, reads, writes }, position): readonly Access[] => {
    const operand = operands[-1 - slice.buffer.id];
    if (!operand) return [];
    const rangeOf = (iterations: number): BufferSlice => {
      const reach = (iterations - 1) * operand.stride;
      const { buffer, offset } = operand.slice;
      return {
        ...{ buffer, offset: offset + slice.offset + Math.min(0, reach) },
        size: slice.size + Math.abs(reach),
      };
    };
    const iterations = reads ? iterationsThatRead(slice, position) : 0;
    return [
      ...(iterations > 0 ? [read(rangeOf(iterations))] : []),
      ...(writes ? [write(rangeOf(count))] : []),
    ];
  });
}

/** Slices of one buffer, with those that touch or overlap merged: the columns of a matrix become the matrix. */
function unionOf(slices: readonly BufferSlice[]): readonly BufferSlice[] {
  const merged: BufferSlice[] = [];
  for (const slice of slices.toSorted((a, b) => a.offset - b.offset)) {
    const last = merged.at(-1);
    if (!last || slice.offset > last.offset + last.size) {
      merged.push(slice);
      continue;
    }
    const end = Math.max(last.offset + last.size, slice.offset + slice.size);
    merged[merged.length - 1] = { ...last, size: end - last.offset };
  }
  return merged;
}

/** How many iterations before a read the write of a moving slice contains it: at least `min`; undefined if none does. */
function distanceTo(
  read: BufferSlice,
  written: BufferSlice,
  stride: number,
  min: number,
): number | undefined {
  const before = written.offset - read.offset;
  const after = before + written.size - read.size;
  const needed = stride === 0 ? 0 : Math.ceil(Math.min(before / stride, after / stride));
  const distance = Math.max(min, needed);
  return before <= distance * stride && distance * stride <= after ? distance : undefined;
}

/**
 * Goes through the stages in order. An input is not read if every load of it follows a store to the same slice in an earlier stage, as in
 * a kernel that fills a tensor in place and loads nothing. Any other input that no stage loads counts as read.
 */
function rowEffects({ kernel, iteration, operands }: RowCall): readonly Access[] {
  const firstInput = kernel.inputs.length;
  const stored: BufferSlice[] = [];
  const forwarded = new Set<number>();
  const loaded = new Set<number>();
  for (const stage of kernel.stages) {
    for (const input of inputsIn(stage.value)) {
      const slice = operands[input];
      const isStored = slice !== undefined && stored.some((earlier) => isSame(earlier, slice));
      if (isStored && !loaded.has(input)) forwarded.add(input);
      loaded.add(input);
    }
    const slice = stage.kind === "store" ? operands[firstInput + stage.output] : undefined;
    if (slice) stored.push(slice);
  }
  for (const [input, slice] of operands.slice(0, firstInput).entries())
    if (!loaded.has(input) && stored.some((output) => isSame(output, slice))) forwarded.add(input);
  const readsAnywhere = kernel.stages.some(({ value }) => hasIndexedLoad(value));
  return operands.flatMap((slice, operand): Access | [] => {
    if (operand >= firstInput) return write(slice);
    if (forwarded.has(operand)) return [];
    return readsAnywhere ? read(slice) : readAlong(slice, kernel, iteration, operand);
  });
}

/** A read of the elements that an iteration visits; of the whole slice if it visits them without gaps. */
function readAlong(slice: BufferSlice, kernel: RowKernel, iteration: Iteration, operand: number): Access {
  const { outer, row } = iteration;
  const hasGaps = outer.length > 0 || (row.strides[operand] ?? 0) > 1;
  const dtype = kernel.inputs[operand];
  // The numbers of a draw have no memory: the slice is the state that they are computed from.
  if (!hasGaps || dtype === undefined || dtype === "draw") return read(slice);
  return { ...read(slice), visits: { iteration, operand, elementBytes: dtypes[dtype].bytes } };
}

function columnEffects({ kernel, operands }: ColumnCall): readonly Access[] {
  const results = operands.length - kernel.outputs.length;
  return operands.map((slice, operand) => (operand < results ? read(slice) : write(slice)));
}

function gemmEffects({ a, b, c, bias, scratch, beta = 0 }: GemmCall["problem"]): Access[] {
  const result = beta === 0 ? write(c.slice) : { ...write(c.slice), reads: true };
  return [
    ...[read(a.slice), read(b.slice)],
    ...(bias ? [read(bias)] : []),
    ...(scratch ? [write(scratch)] : []),
    result,
  ];
}

/** The epilogue has C in registers, and outputs that it forwards to its own inputs. C is memory only if it is stored. */
function epilogueEffects({ problem, epilogue, operands }: GemmEpilogueCall): readonly Access[] {
  const { kernel, gemmInput, storesC, forwarded } = epilogue;
  const results = operands.length - kernel.outputs.length;
  const accesses = gemmEffects(problem).filter((access) => isRead(access) || storesC);
  for (const [operand, slice] of operands.entries()) {
    if (operand >= results) accesses.push(write(slice));
    else if (operand !== gemmInput && forwarded?.[operand] === undefined) accesses.push(read(slice));
  }
  return accesses;
}

/** A reduced vector is read where it is in memory, and so is the map of its compact rows. */
function vectorEffects(vector: ChunkedReduceCall["vectors"][number]): readonly Access[] {
  if (!("sections" in vector)) return [read(vector.storage)];
  return vector.sections.flatMap(({ storage, rowMap }) =>
    rowMap ? [read(storage), read(rowMap.storage)] : [read(storage)],
  );
}

/** A parameter of unknown direction counts as read and written. */
function parameterEffects({ kernel, arguments: values }: LaunchCall): readonly Access[] {
  return values.flatMap((value, index): Access | [] => {
    if (typeof value === "number") return [];
    switch (kernel.parameters[index]) {
      case "in":
        return read(value);
      case "out":
      case "partial-out":
        return write(value);
      default:
        return { slice: value, reads: true, writes: true };
    }
  });
}

function inputsIn(value: Expression): readonly number[] {
  return subexpressionsOf(value).flatMap((expression) =>
    expression.kind === "load" ? [expression.input] : [],
  );
}

function hasIndexedLoad(value: Expression): boolean {
  return subexpressionsOf(value).some(
    (expression) => expression.kind === "load" && expression.at !== undefined,
  );
}

const read = (slice: BufferSlice): Access => ({ slice, reads: true, writes: false });
const write = (slice: BufferSlice): Access => ({ slice, reads: false, writes: true });
const isRead = ({ writes }: Access): boolean => !writes;

function isSame(a: BufferSlice, b: BufferSlice): boolean {
  return a.buffer === b.buffer && a.offset === b.offset && a.size === b.size;
}
