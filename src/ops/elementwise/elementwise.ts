/**
 * How an elementwise op is defined: by the value of one element, as an expression over the operands' elements. Shapes
 * broadcast, dtypes meet by promotion, literal numbers travel with the launch; one kernel is made for each combination of
 * dtypes and kept.
 */

import { HoldfastError } from "../../errors/index.js";
import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  promote,
  promoteWithScalar,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { broadcastStrides, type DeviceArray } from "../device-array.js";
import {
  type Attributes,
  type GradientRule,
  type Gradients,
  isType,
  type KernelOp,
  type NoAttributes,
  type OperandType,
  type SavedPlaces,
  type ValueType,
} from "../op.js";
import { broadcastShapes, sizeOf } from "../shape.js";

/**
 * What an op's result is: of the dtype in which the operands meet, of that or f32 where it is no float, or a truth
 * value.
 */
export type ResultKind = "same" | "float" | "bool";

export interface ElementwiseDefinition<A extends Attributes> {
  readonly name: string;
  readonly operands: number;
  readonly result?: ResultKind;
  /** Operands that are conditions: they take no part in promotion. */
  readonly conditions?: readonly number[];
  /** Numbers that come with the launch, made of the attributes: changing them prints no new kernel. */
  readonly scalars?: (attributes: A, compute: Compute) => readonly number[];
  readonly value: (operands: readonly Expression[], scalars: readonly Expression[]) => Expression;
  readonly saves?: (needs: readonly boolean[], attributes: A) => SavedPlaces;
  readonly gradient?: <V>(rule: GradientRule<V, A>) => Gradients<V>;
  readonly noGradient?: string;
  /** Dtypes that have no meaning for the op, or not with these attributes. */
  readonly rejects?: (dtype: Dtype, attributes: A) => string | undefined;
}

export function elementwise<A extends Attributes = NoAttributes>(
  definition: ElementwiseDefinition<A>,
): KernelOp<A> {
  const {
    name,
    result = "same",
    conditions = [],
    scalars = () => [],
    saves,
    gradient,
    noGradient,
  } = definition;
  const kernels = new Map<string, RowKernel>();

  function infer(operands: readonly OperandType[], attributes: A): readonly ValueType[] {
    if (operands.length !== definition.operands) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${name} takes ${definition.operands} operands, and was given ${operands.length}.`,
      );
    }
    const shape = broadcastShapes(
      name,
      operands.filter(isType).map((operand) => operand.shape),
    );
    const dtype = resultOf(result, meetingOf(operands, conditions));
    const rejection = definition.rejects?.(meetingOf(operands, conditions), attributes);
    if (rejection) throw new HoldfastError("BAD_DTYPE", `${name}: ${rejection}`, { numbers: { op: name } });
    return [{ shape, dtype }];
  }

  /** The dtype in which the element is computed. */
  function computeOf(operands: readonly OperandType[]): Compute {
    const meeting = meetingOf(operands, conditions);
    return dtypes[result === "float" ? resultOf("float", meeting) : meeting].compute;
  }

  function kernelFor(operands: readonly OperandType[], output: Dtype, numbers: number): RowKernel {
    const compute = computeOf(operands);
    const signature = operands.map((operand) => (isType(operand) ? operand.dtype : "number"));
    const key = `${signature.join(" ")} ${compute} ${output}`;
    const known = kernels.get(key);
    if (known) return known;
    const inputs: Dtype[] = [];
    let literals = 0;
    const leaves = operands.map((operand, index) => {
      if (!isType(operand)) return term.scalar(numbers + literals++, compute);
      const load = term.load(inputs.length, dtypes[operand.dtype].compute);
      inputs.push(operand.dtype);
      return conditions.includes(index) ? load : term.convert(load, compute);
    });
    const own = Array.from({ length: numbers }, (_, index) => term.scalar(index, compute));
    const made = definition.value(leaves, own);
    // Truth values are 0 or 1, also where arithmetic makes a 2.
    const value = output === "bool" && result !== "bool" ? term.ne(made, 0) : made;
    const kernel: RowKernel = {
      name,
      inputs,
      outputs: [{ dtype: output, per: "element" }],
      scalars: new Array<Compute>(numbers + literals).fill(compute),
      stages: [{ kind: "store", output: 0, value: term.convert(value, dtypes[output].compute) }],
    };
    kernels.set(key, kernel);
    return kernel;
  }

  return {
    kind: "kernel",
    name,
    infer,
    inPlace: 0,
    ...(saves && { saves }),
    ...(gradient && { gradient }),
    ...(noGradient && { noGradient }),
    lower(lowering, operands, [output], attributes) {
      if (!output?.storage || sizeOf(output.shape) === 0) return;
      const arrays = operands.filter((operand): operand is DeviceArray => typeof operand === "object");
      const literals = operands.filter((operand) => typeof operand === "number");
      const numbers = scalars(attributes, computeOf(operands));
      const kernel = kernelFor(operands, output.dtype, numbers.length);
      const strides = arrays.map((array) => broadcastStrides(array, output.shape));
      lowering.row({
        kernel,
        iteration: iterateElements(output.shape, [...strides, output.strides]),
        operands: [...arrays.flatMap(({ storage }) => storage ?? []), output.storage],
        scalars: [...numbers, ...literals],
      });
    },
  };
}

/** The dtype in which the operands meet; literal numbers give way to tensors of their kind. */
function meetingOf(operands: readonly OperandType[], conditions: readonly number[]): Dtype {
  const counted = operands.filter((_, index) => !conditions.includes(index));
  const tensors = counted.filter(isType).map(({ dtype }) => dtype);
  const [first, ...rest] = tensors;
  const literals = counted.filter((operand) => typeof operand === "number");
  if (!first) return literals.length > 0 ? "f32" : "bool";
  const meeting = rest.reduce(promote, first);
  return literals.reduce<Dtype>(
    (dtype, literal) => promoteWithScalar(dtype, Number.isInteger(literal) ? "integer" : "float"),
    meeting,
  );
}

function resultOf(kind: ResultKind, meeting: Dtype): Dtype {
  if (kind === "bool") return "bool";
  return kind === "float" && dtypes[meeting].kind !== "float" ? "f32" : meeting;
}
