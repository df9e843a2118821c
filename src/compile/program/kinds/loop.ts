/**
 * A loop: a body of calls that runs several times, over operands that move by a stride in each iteration. It is one call of the program,
 * whatever the number of iterations: passes, planner and verifier see the memory of all of them at once.
 */

import type { Parameter } from "../../../driver/index.js";
import type { Command, LoadedCommand, Storage } from "../../../runtime/index.js";
import { accessOf } from "../access.js";
import type { Buffer, BufferSlice } from "../buffer.js";
import { type ColumnCall, column } from "./column.js";
import { type CopyCall, copy } from "./copy.js";
import { type FillCall, fill } from "./fill.js";
import { type GemmCall, gemm } from "./gemm.js";
import type { Emission, Kind } from "./kind.js";
import { type RowCall, row } from "./row.js";

/** A call of a body. Its slices are those of the first iteration, of the buffers that `operandBuffer` made for the operands. */
export type BodyCall = RowCall | ColumnCall | GemmCall | FillCall | CopyCall;

/** All bytes that the iterations access. */
export interface LoopOperandSlice {
  readonly slice: BufferSlice;
  readonly access: Parameter;
  /** In bytes. */
  readonly stride: number;
}

export interface LoopCall {
  readonly kind: "loop";
  readonly count: number;
  readonly operands: readonly LoopOperandSlice[];
  readonly body: readonly BodyCall[];
}

const bodyKinds: { readonly [K in BodyCall["kind"]]: Kind<Extract<BodyCall, { readonly kind: K }>> } = {
  ...{ row, column, gemm, fill, copy },
};

function kindOfBody<W extends BodyCall>({ kind }: W): Kind<W> {
  return bodyKinds[kind] as unknown as Kind<W>;
}

/** Represents an operand in the calls of a body. Its id tells the operand's index. */
export function operandBuffer(index: number, bytes: number): Buffer {
  return { id: -1 - index, bytes, label: `operand ${index}` };
}

const indexOf = ({ buffer }: BufferSlice): number => -1 - buffer.id;

export const loop: Kind<LoopCall> = {
  accesses: ({ operands }) => operands.map(({ slice, access }) => accessOf(slice, access)),
  mapSlices: ({ operands, ...work }, to) => ({
    ...work,
    operands: operands.map((operand) => ({ ...operand, slice: to(operand.slice) })),
  }),
  key({ count, operands, body }, { read, written, literal, identity }) {
    const slices = operands.map(({ slice, access, stride }) =>
      [stride, access === "out" ? written(slice) : read(slice)].join(" "),
    );
    const inBody = (slice: BufferSlice): string => `${indexOf(slice)}+${slice.offset}:${slice.size}`;
    const parts = { read: inBody, written: inBody, literal, identity };
    const calls = body.map((work) => `${work.kind} ${kindOfBody(work).key(work, parts)}`);
    return `${count} ${slices.join(", ")} ${calls.join("; ")}`;
  },
  name: ({ body }) => `loop of ${body.map((work) => kindOfBody(work).name(work)).join(" + ")}`,
  shape: ({ count, body }) => `${count} × ${body.map((work) => kindOfBody(work).shape(work)).join(", ")}`,
  emit: emitLoop,
  isLaunched: ({ body }) => body.every((work) => kindOfBody(work).isLaunched?.(work) ?? true),
};

/** The operands that are workspaces of the body's GEMMs: what a GEMM leaves there may differ from run to run. */
export function workspacesOfLoop({ operands, body }: LoopCall): readonly BufferSlice[] {
  return body.flatMap((work) => {
    const scratch = work.kind === "gemm" ? work.problem.scratch : undefined;
    return (scratch && operands[indexOf(scratch)]?.slice) ?? [];
  });
}

/** Kernels are selected for the alignment of their operands, so iterations with equal alignments have equal kernels. */
const alignment = 256;

type Emitted = Command | LoadedCommand;

/** The commands of the first iteration with some alignment, and the slices that their storages are. */
interface Template {
  readonly commands: readonly Emitted[];
  readonly slices: ReadonlyMap<Storage, BufferSlice>;
}

function emitLoop({ count, operands, body }: LoopCall, emission: Emission): readonly Emitted[] {
  const moving = operands.filter(({ stride }) => stride !== 0);
  const addresses = moving.map(({ slice }) => emission.resolve(slice).span.address);
  const sliceAt = (iteration: number, slice: BufferSlice): BufferSlice => {
    const operand = operands[indexOf(slice)];
    if (!operand) throw new Error(`A loop has ${operands.length} operands, not ${indexOf(slice) + 1}.`);
    const { buffer, offset } = operand.slice;
    return { buffer, offset: offset + slice.offset + iteration * operand.stride, size: slice.size };
  };
  const templates = new Map<string, Template>();
  const emitted: Emitted[] = [];
  for (let iteration = 0; iteration < count; iteration++) {
    const aligned = moving.map(({ stride }, index) => {
      const remainder = ((addresses[index] ?? 0) + iteration * stride) % alignment;
      return (remainder + alignment) % alignment;
    });
    const key = aligned.join();
    const template = templates.get(key);
    if (template) {
      const moved = new Map<Storage, Storage>();
      for (const [storage, slice] of template.slices)
        moved.set(storage, emission.resolve(sliceAt(iteration, slice)));
      for (const command of template.commands) emitted.push(moveCommand(command, moved));
      continue;
    }
    const slices = new Map<Storage, BufferSlice>();
    const resolve = (slice: BufferSlice): Storage => {
      const storage = emission.resolve(sliceAt(iteration, slice));
      slices.set(storage, slice);
      return storage;
    };
    const commands = body.flatMap((work) =>
      kindOfBody(work).emit(work, { ...emission, resolve, prefetches: undefined }),
    );
    templates.set(key, { commands, slices });
    emitted.push(...commands);
  }
  return emitted;
}

/** The same command on other storages. */
function moveCommand(command: Emitted, to: ReadonlyMap<Storage, Storage>): Emitted {
  const move = (storage: Storage): Storage => to.get(storage) ?? storage;
  const moveAll = (values: readonly (Storage | number)[]): (Storage | number)[] =>
    values.map((value) => (typeof value === "number" ? value : move(value)));
  switch (command.kind) {
    case "fill":
      return { ...command, target: move(command.target) };
    case "copy":
      return { ...command, target: move(command.target), source: move(command.source) };
    default:
      return "request" in command
        ? { ...command, request: { ...command.request, arguments: moveAll(command.request.arguments) } }
        : { ...command, arguments: moveAll(command.arguments) };
  }
}
