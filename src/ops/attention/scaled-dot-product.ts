/**
 * scaledDotProductAttention with PyTorch's axes, [batch…, heads, rows, width], with any number of axes before the rows. With
 * `rowsFirst` the axes are those of projections, [batch…, rows, heads, width].
 */

import { where } from "../elementwise/comparisons.js";
import { permute, reshape } from "../movement/reshape.js";
import { type CompositeOp, type Composition, isType, type OperandType, typeAt } from "../op.js";
import { badShape, broadcastShapes, formatShape, isSameShape, type Shape } from "../shape.js";
import { type AttentionAttributes, attention, attentionDtype } from "./attention.js";

const op = "scaledDotProductAttention";

/**
 * Operands: query [batch…, rows, width], key [batch…, columns, width], value [batch…, columns, valueWidth], and an optional mask.
 * A mask of bool is true for the columns that a row sees; a mask of floats is added to the scores.
 */
export const scaledDotProductAttention: CompositeOp<AttentionAttributes & { readonly rowsFirst?: boolean }> =
  {
    kind: "composite",
    name: op,
    infer(operands, { rowsFirst = false }) {
      const shape = rowsFirst
        ? swapped(attentionShape(operands.map(asHeadsFirst)))
        : attentionShape(operands);
      return [{ shape, dtype: attentionDtype(op, operands) }];
    },
    compose(build, [query = 0, key = 0, value = 0, mask], { rowsFirst = false, ...attributes }) {
      return [
        composeRowsFirst(build, { query, key, value, mask, rowsFirst }, (inputs, masks) =>
          build.apply(attention, [...inputs, ...masks], attributes),
        ),
      ];
    },
  };

interface Operands<V> {
  readonly query: V | number;
  readonly key: V | number;
  readonly value: V | number;
  readonly mask: V | number | undefined;
  readonly rowsFirst: boolean;
}

/** Calls a kernel op, whose operands have their rows first, with an additive mask, and gives its result the axes of the operands. */
export function composeRowsFirst<V>(
  build: Composition<V>,
  { query, key, value, mask, rowsFirst }: Operands<V>,
  attend: (inputs: readonly (V | number)[], masks: readonly (V | number)[]) => V,
): V {
  const { apply, typeOf } = build;
  const isBool = mask !== undefined && typeOf(mask).dtype === "bool";
  const additive = isBool ? apply(where, [mask, 0, Number.NEGATIVE_INFINITY]) : mask;
  const masks = additive === undefined ? [] : [additive];
  if (rowsFirst) return attend([query, key, value], masks);
  const swapHeads = (operand: V | number): V => {
    const { shape } = typeOf(operand);
    const withHeads = shape.length < 3 ? apply(reshape, [operand], { shape: [1, ...shape] }) : operand;
    return swapAxes(build, withHeads, -3, -2);
  };
  const out = swapHeads(attend([query, key, value].map(swapHeads), masks));
  const shape = attentionShape([query, key, value].map(typeOf));
  return typeOf(out).shape.length === shape.length ? out : apply(reshape, [out], { shape });
}

/** Exchanges two axes, counted from the end. */
export function swapAxes<V>({ apply, typeOf }: Composition<V>, operand: V | number, a: number, b: number): V {
  const axes = typeOf(operand).shape.map((_, axis) => axis);
  const { length } = axes;
  return apply(permute, [operand], { axes: axes.with(a, length + b).with(b, length + a) });
}

/** The type of a query, key or value with rows first, as with heads first. A mask has the same axes in both. */
function asHeadsFirst(operand: OperandType, index: number): OperandType {
  if (index > 2 || !isType(operand)) return operand;
  if (operand.shape.length >= 3) return { ...operand, shape: swapped(operand.shape) };
  throw badShape(
    op,
    `operand ${index} is ${formatShape(operand.shape)}: with its rows first it is [rows, heads, width].`,
  );
}

/** The shape with axes -3 and -2, rows and heads, exchanged. */
function swapped(shape: Shape): Shape {
  const { length } = shape;
  return [...shape.slice(0, -3), shape[length - 2] ?? 1, shape[length - 3] ?? 1, shape[length - 1] ?? 1];
}

/** The result's shape. Rejects operands that do not fit each other. */
function attentionShape(operands: readonly OperandType[]): Shape {
  const [query, key, value] = [0, 1, 2].map((index) => typeAt(op, operands, index).shape) as [
    Shape,
    Shape,
    Shape,
  ];
  const shapes = `query ${formatShape(query)}, key ${formatShape(key)} and value ${formatShape(value)}`;
  if ([query, key, value].some(({ length }) => length < 2)) {
    throw badShape(op, `${shapes}: each must be [rows, width], with any axes before.`);
  }
  if (query.at(-1) !== key.at(-1) || query.at(-1) === 0) {
    throw badShape(op, `${shapes}: the query and the key must have the same last axis, of size 1 or more.`);
  }
  if (key.at(-2) !== value.at(-2)) {
    throw badShape(op, `${shapes}: the key and the value must have the same number of rows (axis -2).`);
  }
  const outer = broadcastShapes(
    op,
    [query, key, value].map((shape) => shape.slice(0, -2)),
  );
  const [rows = 1, columns = 1] = [query.at(-2), key.at(-2)];
  const mask = operands[3];
  if (isType(mask)) {
    const scores = [...outer, rows, columns];
    const stretched = broadcastShapes(op, [mask.shape, scores]);
    if (!isSameShape(stretched, scores)) {
      throw badShape(
        op,
        `mask ${formatShape(mask.shape)} does not broadcast to the scores' ${formatShape(scores)}.`,
      );
    }
  }
  return [...outer, rows, value.at(-1) ?? 1];
}
