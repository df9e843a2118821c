/**
 * A conversion of half floats to f32 that only row kernels read: each of them loads the half floats and converts them itself. Loads convert
 * exactly, so every value keeps its bits, and the f32 copy is never stored.
 */

import { dtypes, factsOf } from "../../ir/index.js";
import { type Capabilities, capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { variantOf } from "../passes/forwarded-loads.js";
import { type Cast, castOf } from "../program/casts.js";
import type { Node, Program, RowCall } from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";

export function readWidened(runtime: Runtime, program: Program): void {
  const capabilities = capabilitiesOf(runtime);
  for (const node of program.nodes) {
    const cast = castOf(node);
    if (!cast || !isWidening(cast) || !isWrittenOnce(program, cast.to.buffer)) continue;
    const { readers } = program.uses(cast.to.buffer);
    if (readers.length === 0 || !readers.every((reader) => canWiden(reader, cast, capabilities))) continue;
    if (isWrittenUntil(program, cast, readers)) continue;
    for (const reader of [...readers]) {
      const { work } = reader.call;
      if (work.kind === "row") program.replace(reader, { ...reader.call, work: widening(work, cast) });
    }
    program.remove(node);
  }
}

const halves: ReadonlySet<string> = new Set(["bf16", "f16"]);

function isWidening({ work: { kernel } }: Cast): boolean {
  return halves.has(kernel.inputs[0] ?? "") && kernel.outputs[0]?.dtype === "f32";
}

function canWiden({ call }: Node, { to, node }: Cast, capabilities: Capabilities): boolean {
  const { work } = call;
  if (work.kind !== "row" || call.isRematerialized !== node.call.isRematerialized) return false;
  // Elsewhere the order of a row's sum may depend on the dtypes of the operands.
  return (
    (capabilities.reducesRowsByLengthAlone || factsOf(work.kernel).isElementwise) &&
    work.operands.every(({ buffer }, index) => buffer !== to.buffer || work.kernel.inputs[index] === "f32")
  );
}

/** True if a call writes the half floats between the conversion and its last reader, or as that reader. */
function isWrittenUntil(program: Program, { from, node }: Cast, readers: readonly Node[]): boolean {
  const last = readers.at(-1) ?? node;
  return program.uses(from.buffer).writers.some((writer) => node.isBefore(writer) && !last.isBefore(writer));
}

/** The call with the half floats as inputs. */
function widening(work: RowCall, { from, to, work: { kernel } }: Cast): RowCall {
  const dtype = kernel.inputs[0] === "bf16" ? "bf16" : "f16";
  const scale = dtypes[dtype].bytes / dtypes.f32.bytes;
  const inputs = work.kernel.inputs.map((input, index) =>
    work.operands[index]?.buffer === to.buffer ? dtype : input,
  );
  return {
    ...work,
    kernel: variantOf(work.kernel, `${inputs}`, (full) => ({ ...full, inputs })),
    operands: work.operands.map(({ buffer, offset, size }) =>
      buffer === to.buffer
        ? { buffer: from.buffer, offset: from.offset + offset * scale, size: size * scale }
        : { buffer, offset, size },
    ),
  };
}
