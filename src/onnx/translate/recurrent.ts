/** Recurrent layers as ONNX's LSTM, GRU and RNN. */

import type { Call, Value } from "../merge-traces.js";
import type { CallContext, Translation } from "./call-context.js";

type Cell = "lstm" | "gru" | "tanh" | "relu";

interface OnnxCell {
  readonly type: "LSTM" | "GRU" | "RNN";
  /** ONNX's gates as indices of ours: i, o, f, c of an LSTM, and z, r, h of a GRU. */
  readonly gates: readonly number[];
}

const cells: Readonly<Record<Cell, OnnxCell>> = {
  lstm: { type: "LSTM", gates: [0, 3, 1, 2] },
  gru: { type: "GRU", gates: [1, 0, 2] },
  tanh: { type: "RNN", gates: [0] },
  relu: { type: "RNN", gates: [0] },
};

/** The gates of a weight [gates · hidden, …] in ONNX's order, with a first axis for the direction. */
function reorder(at: CallContext, name: string, { gates }: OnnxCell, hidden: number): string {
  const inOrder = gates.every((gate, index) => gate === index);
  const parts = gates.map((gate) =>
    at.node("Slice", [name, at.ints([gate * hidden]), at.ints([(gate + 1) * hidden]), at.ints([0])]),
  );
  const ordered = inOrder ? name : at.node("Concat", parts, { axis: { int: 0 } });
  return at.node("Unsqueeze", [ordered, at.ints([0])]);
}

interface Projection {
  /** [steps, batch, input] */
  readonly x: string;
  /** [gates · hidden, input] */
  readonly weight: string;
  /** [gates · hidden] */
  readonly bias: string | undefined;
}

/** The layer's input and weight, if the gates are their linear product, as the layers of nn compute it. */
function projectionOf(at: CallContext): Projection | undefined {
  const found = linearOf(at.value(0));
  if (!found) return undefined;
  const { linear, isTransposed } = found;
  const [x, weight, bias] = linear.operands as readonly Value[];
  const isOutIn = linear.attributes["layout"] !== "inOut";
  const { compute } = at;
  if (!x || !weight || !isOutIn || x.shape.length !== 3) return undefined;
  const inCompute = (value: Value): string => at.cast(at.nameOf(value), value.dtype, compute);
  return {
    x: isTransposed ? at.transpose(inCompute(x), [1, 0, 2]) : inCompute(x),
    weight: inCompute(weight),
    bias: bias && inCompute(bias),
  };
}

function linearOf(gates: Value): { readonly linear: Call; readonly isTransposed: boolean } | undefined {
  const { source } = gates;
  if (source.kind !== "call") return undefined;
  const { call } = source;
  if (call.op === "linear") return { linear: call, isTransposed: false };
  const [inner] = call.operands;
  const isTransposition = call.op === "permute" && String(call.attributes["axes"]) === "1,0,2";
  if (!isTransposition || typeof inner !== "object" || !("source" in inner)) return undefined;
  const found = linearOf(inner);
  return found && !found.isTransposed ? { ...found, isTransposed: true } : undefined;
}

/** The input projection is inside of ONNX's layers. Without one, it is the identity. */
function identityProjection(at: CallContext, width: number): Projection {
  const identity = Array.from({ length: width * width }, (_, index) => Number(index % (width + 1) === 0));
  return {
    x: at.operand(0),
    weight: at.graph.constant(at.compute, [width, width], identity),
    bias: undefined,
  };
}

export const recurrent: Translation = (at) => {
  const name = at.text("cell") as Cell;
  const cell = cells[name];
  const [hidden = 1] = at.fixed(at.value(1).shape.slice(1), "the hidden size");
  const width = cell.gates.length * hidden;
  const isReversed = at.flag("isReversed");
  const isPlain = cell.type === "RNN";
  const mask = isPlain ? 3 : 4;
  const { x, weight, bias } = projectionOf(at) ?? identityProjection(at, width);
  const zeros = at.graph.constant(at.compute, [width], new Array<number>(width).fill(0));
  const stateBias = name === "gru" ? at.operand(3) : zeros;
  const biases = at.node(
    "Concat",
    [bias ?? zeros, stateBias].map((part) => reorder(at, part, cell, hidden)),
    { axis: { int: 1 } },
  );
  const lengths = at.hasOperand(mask)
    ? at.node("ReduceSum", [at.input(mask, "i32"), at.ints([0])], { keepdims: { int: 0 } })
    : "";
  const first = (operand: number): string => at.node("Unsqueeze", [at.operand(operand), at.ints([0])]);
  const initial = first(1);
  const activations = isPlain ? [name === "relu" ? "Relu" : "Tanh"] : undefined;
  const outputs = at.graph.nodeOf(
    cell.type,
    [
      ...[
        x,
        reorder(at, weight, cell, hidden),
        reorder(at, at.operand(2), cell, hidden),
        biases,
        lengths,
        initial,
      ],
      ...(name === "lstm" ? [first(3)] : []),
    ],
    {
      hidden_size: { int: hidden },
      direction: { text: isReversed ? "reverse" : "forward" },
      ...(name === "gru" && { linear_before_reset: { int: 1 } }),
      ...(activations && { activations: { texts: activations } }),
    },
    name === "lstm" ? 3 : 2,
  );
  const [all = "", last = "", lastCell = ""] = outputs;
  const states = at.node("Squeeze", [all, at.ints([1])]); // [steps, batch, hidden]
  if (lengths === "")
    return at.result(
      joinStates(at, isReversed, { initial, states, cell: name === "lstm" ? lastCell : undefined }),
    );
  // ONNX gives 0 after the end of a sequence, and for one without steps; the states stay as they are.
  const hasSteps = at.node("Reshape", [
    at.node("Greater", [lengths, at.graph.scalar("i32", 0)]),
    at.ints([1, -1, 1]),
  ]);
  const keep = (final: string, start: string): string => at.node("Where", [hasSteps, final, start]);
  const isInside = at.node("Unsqueeze", [at.input(mask), at.ints([-1])]);
  const kept = at.node("Where", [isInside, states, isReversed ? initial : keep(last, initial)]);
  const cellState = name === "lstm" ? keep(lastCell, first(3)) : undefined;
  return at.result(joinStates(at, isReversed, { initial, states: kept, cell: cellState }));
};

interface StatesToJoin {
  readonly initial: string;
  readonly states: string;
  readonly cell: string | undefined;
}

/** The states of all steps with the initial one, then the final cell: [steps + 1 or 2, batch, hidden]. */
function joinStates(at: CallContext, isReversed: boolean, { initial, states, cell }: StatesToJoin): string {
  const rows = isReversed ? [states, initial] : [initial, states];
  return at.node("Concat", [...rows, ...(cell === undefined ? [] : [cell])], { axis: { int: 0 } });
}
