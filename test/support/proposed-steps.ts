/**
 * Small programs with their schedules and plans, for tests of the planner and the verifier. Kernels here are
 * names with parameters: nothing runs.
 */

import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type Plan,
  type Schedule,
} from "../../src/compile/program/program.js";
import { verifyPlan } from "../../src/compile/verify/verify.js";
import type { Kernel, Parameter } from "../../src/driver/index.js";
import type { HoldfastError } from "../../src/errors/index.js";
import { alignUp, type Span, span } from "../../src/units/index.js";
import { rejectionOf } from "./rejections.js";

export interface ProposedStep {
  readonly program: readonly Call[];
  readonly schedule: Schedule;
  readonly plan: Plan;
  readonly block?: Span;
}

/** The slices that a call accesses, by kind of access. */
export interface Operands {
  readonly reads?: readonly (BufferSlice | Buffer)[];
  readonly writes?: readonly (BufferSlice | Buffer)[];
  readonly updates?: readonly (BufferSlice | Buffer)[];
}

/** Builds a program, call by call. */
export class Sketch {
  readonly program: Call[] = [];
  #buffers = 0;

  /** Memory of the step. */
  step(label: string, bytes: number): Buffer {
    return { id: this.#buffers++, bytes, label };
  }

  /** Persistent memory. */
  persistent(label: string, address: number, bytes: number): Buffer {
    const storage = {
      kind: "persistent",
      span: span(address, bytes),
      generation: 0,
      label,
      home: this,
      owner: undefined,
    } as const;
    return { id: this.#buffers++, bytes, label, storage };
  }

  launch(op: string, { reads = [], writes = [], updates = [] }: Operands): Call {
    const parameters: Parameter[] = [
      ...reads.map(() => "in" as const),
      ...writes.map(() => "out" as const),
      ...updates.map(() => "inout" as const),
      "u32",
    ];
    const kernel: Kernel = { type: "kernel", id: 0, name: op, parameters };
    const operands = [...reads, ...writes, ...updates].map(wholeOf);
    return this.#add({ op, work: { kind: "launch", kernel, blocks: 1, arguments: [...operands, 1] } });
  }

  fill(op: string, target: BufferSlice | Buffer): Call {
    return this.#add({ op, work: { kind: "fill", target: wholeOf(target), byte: 0 } });
  }

  copy(op: string, source: BufferSlice | Buffer, target: BufferSlice | Buffer): Call {
    return this.#add({ op, work: { kind: "copy", source: wholeOf(source), target: wholeOf(target) } });
  }

  #add(call: Call): Call {
    this.program.push(call);
    return call;
  }
}

export function sliceOf(buffer: Buffer, offset: number, size: number): BufferSlice {
  return { buffer, offset, size };
}

function wholeOf(operand: BufferSlice | Buffer): BufferSlice {
  return "buffer" in operand ? operand : { buffer: operand, offset: 0, size: operand.bytes };
}

/** True if two calls access the same bytes and one of them writes there. */
export function haveConflict(a: Call, b: Call): boolean {
  return accessesOf(a).some((access) =>
    accessesOf(b).some((other) => (access.writes || other.writes) && share(access.slice, other.slice)),
  );
}

/** True if two slices overlap, wherever step memory is planned. */
export function share(a: BufferSlice, b: BufferSlice): boolean {
  if (a.buffer !== b.buffer && (a.buffer.storage === undefined || b.buffer.storage === undefined))
    return false;
  const start = (slice: BufferSlice): number => (slice.buffer.storage?.span.address ?? 0) + slice.offset;
  return start(a) < start(b) + b.size && start(b) < start(a) + a.size;
}

/**
 * The calls in order on the given streams, each waiting for all earlier calls that it depends on; a last call
 * of the main stream waits for all.
 */
export function scheduleOn(program: readonly Call[], streams: readonly number[]): Schedule {
  const streamOf = (index: number): number => (index === program.length - 1 ? 0 : (streams[index] ?? 0));
  return {
    calls: program.map((call, index) => {
      const isEnd = index === program.length - 1;
      const after = [...program.keys()].filter(
        (earlier) =>
          earlier < index &&
          streamOf(earlier) !== streamOf(index) &&
          (isEnd || haveConflict(program[earlier]!, call)),
      );
      return { call, stream: streamOf(index), after };
    }),
  };
}

/** Every buffer at its own offset. */
export function planDisjoint(schedule: Schedule): Plan {
  const offsets = new Map<Buffer, number>();
  let bytes = 0;
  for (const buffer of stepBuffers(schedule)) {
    offsets.set(buffer, bytes);
    bytes += alignUp(buffer.bytes, 256);
  }
  return { bytes, offsets };
}

/** Each buffer at the lowest offset where it overlaps no other that may be live at the same time. */
export function planFirstFit(schedule: Schedule): Plan {
  const isBefore = reachability(schedule);
  const uses = new Map<Buffer, number[]>();
  for (const [index, { call }] of schedule.calls.entries()) {
    for (const { slice } of accessesOf(call))
      uses.set(slice.buffer, [...(uses.get(slice.buffer) ?? []), index]);
  }
  const isOver = (a: Buffer, b: Buffer): boolean =>
    uses.get(a)!.every((use) => uses.get(b)!.every((other) => isBefore(use, other)));

  const offsets = new Map<Buffer, number>();
  let bytes = 0;
  for (const buffer of stepBuffers(schedule)) {
    const rivals = [...offsets]
      .filter(([other]) => !isOver(other, buffer) && !isOver(buffer, other))
      .sort(([, a], [, b]) => a - b);
    let offset = 0;
    for (const [other, start] of rivals) {
      if (start < offset + buffer.bytes && offset < start + other.bytes) {
        offset = alignUp(start + other.bytes, 256);
      }
    }
    offsets.set(buffer, offset);
    bytes = Math.max(bytes, alignUp(offset + buffer.bytes, 256));
  }
  return { bytes, offsets };
}

function stepBuffers({ calls }: Schedule): Set<Buffer> {
  const touched = calls.flatMap(({ call }) => accessesOf(call).map(({ slice }) => slice.buffer));
  return new Set(touched.filter(({ storage }) => storage === undefined));
}

/** Which index has ended before which other begins, by a search along the waits of each. */
export function reachability({ calls }: Schedule): (earlier: number, later: number) => boolean {
  const before = calls.map(() => new Set<number>());
  for (const [position, { stream, after }] of calls.entries()) {
    const previous = calls.findLastIndex((other, index) => index < position && other.stream === stream);
    for (const ended of previous < 0 ? after : [previous, ...after]) {
      before[position]!.add(ended);
      for (const further of before[ended]!) before[position]!.add(further);
    }
  }
  return (earlier, later) => before[later]!.has(earlier);
}

/** How the verifier rejects a step before its block is known; undefined if it accepts it. */
export function rejectionBy({ program, schedule, plan }: ProposedStep): HoldfastError | undefined {
  return rejectionOf(() => verifyPlan(program, schedule, plan));
}
