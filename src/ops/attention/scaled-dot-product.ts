/**
 * scaledDotProductAttention with PyTorch's axes, [batch…, heads, rows, width], with any number of axes before the rows. With
 * `rowsFirst` the axes are those of projections, [batch…, rows, heads, width].
 */

import { expand } from "../broadcast.js";
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
    infer(operands, { rowsFirst = false, enableGqa = false }) {
      const shape = rowsFirst
        ? swapped(attentionShape(operands.map(asHeadsFirst), enableGqa))
        : attentionShape(operands, enableGqa);
      return [{ shape, dtype: attentionDtype(op, operands) }];
    },
    compose(build, [query = 0, key = 0, value = 0, mask], { rowsFirst = false, ...attributes }) {
      return [
        composeRowsFirst(
          build,
          { query, key, value, mask, rowsFirst },
          attributes,
          (inputs, masks, ungrouped) => build.apply(attention, [...inputs, ...masks], ungrouped),
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
export function composeRowsFirst<V, A extends AttentionAttributes>(
  build: Composition<V>,
  { query, key, value, mask, rowsFirst }: Operands<V>,
  attributes: A,
  attend: (inputs: readonly (V | number)[], masks: readonly (V | number)[], attributes: A) => V,
): V {
  const { apply, typeOf } = build;
  const isBool = mask !== undefined && typeOf(mask).dtype === "bool";
  const additive = isBool ? apply(where, [mask, 0, Number.NEGATIVE_INFINITY]) : mask;
  const masks = additive === undefined ? [] : [additive];
  const swapHeads = (operand: V | number): V => {
    const { shape } = typeOf(operand);
    const withHeads = shape.length < 3 ? apply(reshape, [operand], { shape: [1, ...shape] }) : operand;
    return swapAxes(build, withHeads, -3, -2);
  };
  const inputs = [query, key, value].map((operand) => (rowsFirst ? operand : swapHeads(operand)));
  // Kernels that keep probabilities have a head of keys for each head of queries.
  const { enableGqa = false, keeps } = attributes;
  const isRepeated = enableGqa && keeps !== "statistics";
  const out = attend(isRepeated ? repeatHeads(build, inputs, -2) : inputs, masks, {
    ...attributes,
    enableGqa: enableGqa && !isRepeated,
  });
  if (rowsFirst) return out;
  const swappedOut = swapHeads(out);
  const shape = attentionShape([query, key, value].map(typeOf), enableGqa);
  return typeOf(swappedOut).shape.length === shape.length
    ? swappedOut
    : apply(reshape, [swappedOut], { shape });
}

/** Query, key and value, the latter two with each head as often as heads of the query share it. */
export function repeatHeads<V>(
  { apply, typeOf }: Composition<V>,
  [query = 0, ...keyAndValue]: readonly (V | number)[],
  headAxis: number,
): readonly (V | number)[] {
  const heads = typeOf(query).shape.at(headAxis) ?? 1;
  const repeated = keyAndValue.map((operand) => {
    const { shape } = typeOf(operand);
    const axis = shape.length + headAxis;
    const { [axis]: keyHeads = 1 } = shape;
    if (keyHeads === heads) return operand;
    const apart = apply(reshape, [operand], { shape: shape.toSpliced(axis + 1, 0, 1) });
    const wide = apply(expand, [apart], { shape: shape.toSpliced(axis + 1, 0, heads / keyHeads) });
    return apply(reshape, [wide], { shape: shape.with(axis, heads) });
  });
  return [query, ...repeated];
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

/** The shape of keys or values with the heads of queries. Rejects heads that cannot be shared. */
function withHeadsOf(query: Shape, key: Shape, name: string): Shape {
  const [heads, keyHeads] = [query.at(-3), key.at(-3)];
  if (heads !== undefined && keyHeads !== undefined && keyHeads > 0 && heads % keyHeads === 0)
    return key.with(-3, heads);
  throw badShape(
    op,
    `query ${formatShape(query)} and ${name} ${formatShape(key)}: with enableGqa both have heads, axis -3 of [heads, rows, width], and those of the ${name} divide those of the query.`,
  );
}

/** The result's shape. Rejects operands that do not fit each other. */
function attentionShape(operands: readonly OperandType[], enableGqa: boolean): Shape {
  const [query, key, value] = [0, 1, 2].map((index) => typeAt(op, operands, index).shape) as [
    Shape,
    Shape,
    Shape,
  ];
  const shapes = `query ${formatShape(query)}, key ${formatShape(key)} and value ${formatShape(value)}`;
  const withHeads = (shape: Shape, name: string): Shape =>
    enableGqa ? withHeadsOf(query, shape, name) : shape;
  if ([query, key, value].some(({ length }) => length < 2)) {
    throw badShape(op, `${shapes}: each must be [rows, width], with any axes before.`);
  }
  if (query.at(-1) !== key.at(-1) || query.at(-1) === 0) {
    throw badShape(op, `${shapes}: the query and the key must have the same last axis, of size 1 or more.`);
  }
  if (key.at(-2) !== value.at(-2)) {
    throw badShape(op, `${shapes}: the key and the value must have the same number of rows (axis -2).`);
  }
  if (enableGqa && key.at(-3) !== value.at(-3)) {
    throw badShape(op, `${shapes}: the key and the value must have the same number of heads (axis -3).`);
  }
  const grouped = [query, withHeads(key, "key"), withHeads(value, "value")];
  const outer = broadcastShapes(
    op,
    grouped.map((shape) => shape.slice(0, -2)),
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
