/** Instructions that change state: in-place writes, backward, the optimizer, and detached values. */

import { sizeOf } from "../../../src/ops/index.js";
import { type Builder, isSame } from "./builder.js";
import type { Choices } from "./choices.js";
import type { Maker } from "./instructions.js";
import { randomLiteral } from "./literals.js";

/** An in-place op on a target: with another value, with a number, or alone. */
function write(builder: Builder, choices: Choices, target: string, isRecorded: boolean): void {
  const { shape } = builder.find(target);
  const how = choices.below(4);
  if (how === 0) {
    const op = choices.of(["add", "sub"]);
    const other = builder.broadcastable(choices, shape);
    const scaled = builder.op("mul", [other, 0.5], {}, { isRecorded });
    builder.inPlace(op, [target, scaled], {}, isRecorded);
  } else if (how === 1)
    builder.inPlace(
      choices.of(["mul", "add", "div"]),
      [target, randomLiteral(choices, [0.5, -1.25])],
      {},
      isRecorded,
    );
  else if (how === 2)
    builder.inPlace(choices.of(["tanh", "relu", "neg", "sigmoid", "silu", "abs"]), [target], {}, isRecorded);
  else builder.inPlace("fill", [target], { value: randomLiteral(choices, [0, 0.5]) }, isRecorded);
}

function floats(builder: Builder): readonly Builder["values"][number][] {
  return builder.values.filter(({ dtype }) => dtype === "float");
}

export const stateMakers: Readonly<Record<string, Maker>> = {
  /** Mostly on values that no recorded op has read; otherwise backward detects the change. */
  inPlace(builder, choices) {
    const isBold = choices.isOneIn(8);
    // A constant would carry the graph of its step into the next one.
    const constants = builder.inputs.filter(({ role }) => role === "constant").map(({ name }) => name);
    const free = floats(builder).filter(
      ({ home, isLeaf, name }) =>
        !constants.includes(home) && (isBold || (!isLeaf && home === name && !builder.read.has(home))),
    );
    const target = free.length > 0 ? choices.of(free).name : builder.op("sin", [builder.anyFloat(choices)]);
    write(builder, choices, target, true);
  },
  /** Into a slice of a tensor without a gradient. */
  intoSlice(builder, choices) {
    const free = floats(builder).filter(
      ({ takesGradient, home, shape }) =>
        !takesGradient && !builder.read.has(home) && shape.length > 0 && sizeOf(shape) > 0,
    );
    const whole =
      free.length > 0
        ? choices.of(free).name
        : builder.input(choices.of(["constant", "argument"] as const), [3, 4], "float", -1, 1);
    const shape = builder.shapeOf(whole);
    const axis = choices.below(shape.length);
    const at = choices.below(shape[axis]!);
    const slice = choices.isOneIn(2)
      ? builder.op("select", [whole], { axis, index: at }, { isRecorded: false })
      : builder.op(
          "slice",
          [whole],
          { ranges: shape.map((_, dimension) => (dimension === axis ? [at, null, 1] : null)) },
          { isRecorded: false },
        );
    write(builder, choices, slice, false);
  },
  /** Of a parameter or a constant, outside the graph. */
  ofState(builder, choices) {
    const states = builder.inputs.filter(
      ({ role, dtype, name }) =>
        dtype === "float" && role !== "argument" && (choices.isOneIn(6) || !builder.read.has(name)),
    );
    if (states.length === 0) return;
    const { name, shape, role } = choices.of(states);
    if (role === "parameter" && choices.isOneIn(2)) {
      const gradient = builder.gradient(name);
      const step = builder.op("mul", [gradient, 0.01], {}, { isRecorded: false });
      builder.inPlace("sub", [name, step], {}, false);
    } else if (choices.isOneIn(2)) {
      const source = floats(builder).filter((candidate) => isSame(candidate.shape, shape));
      const target = builder.op("tanh", [choices.of(source).name], {}, { isRecorded: false, size: 1 });
      builder.inPlace("contiguous", [name, target], {}, false);
    } else write(builder, choices, name, false);
  },
  detach(builder, choices) {
    builder.detach(builder.anyFloat(choices));
  },
  unrecorded(builder, choices) {
    const x = builder.anyFloat(choices);
    builder.op(choices.of(["sin", "tanh", "neg"]), [x], {}, { isRecorded: false });
  },
  /** Of a mean, or of a value with a gradient of its shape. */
  backward(builder, choices) {
    const roots = floats(builder).filter((value) => value.takesGradient && sizeOf(value.shape) > 0);
    if (roots.length === 0) return;
    const root = roots[roots.length - 1 - choices.below(Math.min(3, roots.length))]!;
    const retainGraph = choices.isOneIn(3);
    if (choices.isOneIn(4)) {
      const gradient = builder.input("argument", root.shape, "float", -1, 1);
      builder.add({ kind: "backward", of: root.name, gradient, retainGraph });
    } else {
      const squares = choices.isOneIn(2) ? builder.op("square", [root.name], {}, { size: 1 }) : root.name;
      const loss = builder.op(choices.of(["mean", "sum"]), [squares], {}, { size: 1 });
      builder.add({ kind: "backward", of: loss, retainGraph });
    }
    if (!retainGraph) builder.read.clear();
  },
  optimize(builder, choices) {
    if (choices.isOneIn(2)) builder.add({ kind: "clip", maxNorm: choices.of([1, 0.5, 100]) });
    builder.add({ kind: "update" });
    if (!choices.isOneIn(3)) builder.add({ kind: "zeroGrad" });
  },
};
