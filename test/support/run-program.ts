/** Runs a program unchanged, each buffer in its own memory, and reads some of them at the end. */

import type { Buffer, BufferSlice, Call, PartialReduceCall } from "../../src/compile/program/program.js";
import { backendOf, columnCalls, rowCalls, submit } from "../../src/kernels/index.js";
import type { Runtime, Storage } from "../../src/runtime/index.js";

/** Call it inside a step of the runtime. */
export function runProgram(
  runtime: Runtime,
  program: readonly Call[],
  storages: ReadonlyMap<Buffer, Storage>,
): void {
  // Only the program reads buffers that passes have created, so a test need not list them.
  const memory = new Map<Buffer, Storage>();
  const resolve = ({ buffer, offset, size }: BufferSlice): Storage => {
    const storage =
      storages.get(buffer) ?? memory.get(buffer) ?? runtime.arena.allocate(buffer.bytes, buffer.label);
    if (!storages.has(buffer)) memory.set(buffer, storage);
    return offset === 0 && size === storage.span.size ? storage : runtime.view(storage, offset, size);
  };
  const begunOn = ({ columns, scratch }: PartialReduceCall) => ({
    members: columns.map((column) => ({ ...column, operands: column.operands.map(resolve) })),
    scratch: resolve(scratch),
  });
  for (const { work } of program) {
    switch (work.kind) {
      case "row":
        submit(runtime, rowCalls({ ...work, operands: work.operands.map(resolve) }));
        break;
      case "combo":
        submit(
          runtime,
          backendOf(runtime).lowerRowCombo(
            work.rows.map((row) => ({ ...row, operands: row.operands.map(resolve) })),
            "rows",
          ),
        );
        break;
      case "column":
        submit(runtime, columnCalls({ ...work, operands: work.operands.map(resolve) }));
        break;
      case "partial-reduce":
        submit(runtime, backendOf(runtime).lowerPartials(begunOn(work), "columns"));
        break;
      case "grouped-reduce":
        submit(
          runtime,
          backendOf(runtime).lowerColumnGroup(
            work.columns.map((column) => ({ ...column, operands: column.operands.map(resolve) })),
            {
              scratch: work.scratch && resolve(work.scratch),
              earlier: work.partials && begunOn(work.partials),
            },
          ),
        );
        break;
      case "fill":
        runtime.fill(resolve(work.target), work.byte);
        break;
      case "copy":
        runtime.copy(resolve(work.target), resolve(work.source));
        break;
      default:
        throw new Error(`A program for tests has no ${work.kind}.`);
    }
  }
}
