/**
 * Defines an elementwise op by the value of one element, as an expression of the operands' elements. Shapes broadcast, dtypes are
 * promoted, and literal numbers are arguments of the launch. One kernel is created and cached for each combination of dtypes.
 */

import { HoldfastError } from "../../errors/index.js";
import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  gradientOf,
  iterateElements,
  promote,
  promoteWithScalar,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { broadcastStrides, type DeviceArray, keptStrides } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import {
  type Attributes,
  type GradientRule,
  type Gradients,
  isType,
  type KernelOp,
  type NoAttributes,
  type OperandType,
  type SavedIndices,
  type ValueType,
} from "../op.js";
import { broadcastShapes, sizeOf } from "../shape.js";

/** The result's dtype: "same" is the promoted dtype, "float" is the promoted dtype or f32 if that is no float. */
export type ResultKind = "same" | "float" | "bool";

export interface ElementwiseDefinition<A extends Attributes> {
  readonly name: string;
  readonly operands: number;
  readonly result?: ResultKind;
  /** Operands that are conditions: promotion ignores them. */
  readonly conditions?: readonly number[];
  /** Arguments of the launch, computed from the attributes: changing them needs no new kernel. */
  readonly scalars?: (attributes: A, compute: Compute) => readonly number[];
  readonly value: (operands: readonly Expression[], scalars: readonly Expression[]) => Expression;
  readonly saves?: (needs: readonly boolean[], attributes: A) => SavedIndices;
  /** Default: derived from `value`, unless there is a reason in `noGradient`. */
  readonly gradient?: <V>(rule: GradientRule<V, A>) => Gradients<V>;
  readonly noGradient?: string;
  /** Why the op rejects a dtype, alone or with these attributes; undefined if it accepts it. */
  readonly rejects?: (dtype: Dtype, attributes: A) => string | undefined;
}

export function elementwise<A extends Attributes = NoAttributes>(
  definition: ElementwiseDefinition<A>,
): KernelOp<A> {
  const { name, result = "same", conditions = [], scalars = () => [], noGradient } = definition;
  const { saves, gradient } = noGradient || definition.gradient ? definition : derivedGradient(definition);
  const kernels = new Map<string, RowKernel>();

  function infer(operands: readonly OperandType[], attributes: A): readonly ValueType[] {
    if (operands.length !== definition.operands) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${name} takes ${definition.operands} operands, but got ${operands.length}.`,
      );
    }
    const shape = broadcastShapes(
      name,
      operands.filter(isType).map((operand) => operand.shape),
    );
    const dtype = resultDtype(result, promotedDtype(operands, conditions));
    const rejection = definition.rejects?.(promotedDtype(operands, conditions), attributes);
    if (rejection) throw new HoldfastError("BAD_DTYPE", `${name}: ${rejection}`, { numbers: { op: name } });
    return [{ shape, dtype }];
  }

  /** The type in which an element is computed. */
  function computeOf(operands: readonly OperandType[]): Compute {
    const promoted = promotedDtype(operands, conditions);
    return dtypes[result === "float" ? resultDtype("float", promoted) : promoted].compute;
  }

  function kernelFor(operands: readonly OperandType[], output: Dtype, scalarCount: number): RowKernel {
    const compute = computeOf(operands);
    const signature = operands.map((operand) => (isType(operand) ? operand.dtype : "number"));
    const key = `${signature.join(" ")} ${compute} ${output}`;
    const cached = kernels.get(key);
    if (cached) return cached;
    const inputs: Dtype[] = [];
    let literals = 0;
    const leaves = operands.map((operand, index) => {
      if (!isType(operand)) return term.scalar(scalarCount + literals++, compute);
      const load = term.load(inputs.length, dtypes[operand.dtype].compute);
      inputs.push(operand.dtype);
      return conditions.includes(index) ? load : term.convert(load, compute);
    });
    const scalarTerms = Array.from({ length: scalarCount }, (_, index) => term.scalar(index, compute));
    const raw = definition.value(leaves, scalarTerms);
    // Booleans are 0 or 1, also if arithmetic gives 2.
    const value = output === "bool" && result !== "bool" ? term.ne(raw, 0) : raw;
    const kernel: RowKernel = {
      name,
      inputs,
      outputs: [{ dtype: output, per: "element" }],
      scalars: new Array<Compute>(scalarCount + literals).fill(compute),
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
    outputStrides: (_, operands, [type]) => [type && keptStrides(operands, type.shape)],
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

/**
 * The gradient as elementwise ops of the upstream gradient and all operands, by symbolic derivatives. These ops have such gradients too,
 * so the entry can be differentiated any number of times.
 */
function derivedGradient<A extends Attributes>({
  name,
  operands: count,
  result,
  conditions = [],
  scalars,
  value,
}: ElementwiseDefinition<A>): Required<Pick<ElementwiseDefinition<A>, "saves" | "gradient">> {
  const ops: (KernelOp<A> | undefined)[] = [];
  const gradientOp = (index: number): KernelOp<A> => {
    const existing = ops[index];
    const op =
      existing ??
      elementwise<A>({
        name: name.endsWith("Gradient") ? name : `${name}Gradient`,
        operands: count + 1,
        ...(result && { result }),
        conditions: conditions.map((condition) => condition + 1),
        ...(scalars && { scalars }),
        value: ([upstream = zero, ...operands], scalarTerms) => {
          const variable = operands[index] ?? zero;
          const gradient = gradientOf(value(operands, scalarTerms), variable, upstream);
          return gradient ?? term.constant(0, upstream.type);
        },
      });
    ops[index] = op;
    return op;
  };
  return {
    saves: () => ({ operands: Array.from({ length: count }, (_, index) => index) }),
    gradient: (rule) => {
      const indices = Array.from({ length: rule.operandCount }, (_, index) => index);
      const operands = indices.map((index) => rule.operand(index));
      return indices.map((index) =>
        rule.needs(index)
          ? fitToOperand(
              rule,
              rule.apply(gradientOp(index), [rule.upstream, ...operands], rule.attributes),
              index,
            )
          : undefined,
      );
    },
  };
}

const zero = term.constant(0, "f32");

/** The promoted dtype of the operands. A literal number takes the dtype of a tensor of the same kind. */
function promotedDtype(operands: readonly OperandType[], conditions: readonly number[]): Dtype {
  const promotable = operands.filter((_, index) => !conditions.includes(index));
  const tensors = promotable.filter(isType).map(({ dtype }) => dtype);
  const [first, ...rest] = tensors;
  const literals = promotable.filter((operand) => typeof operand === "number");
  if (!first) return literals.length > 0 ? "f32" : "bool";
  const promoted = rest.reduce(promote, first);
  return literals.reduce<Dtype>(
    (dtype, literal) => promoteWithScalar(dtype, Number.isInteger(literal) ? "integer" : "float"),
    promoted,
  );
}

function resultDtype(kind: ResultKind, promoted: Dtype): Dtype {
  if (kind === "bool") return "bool";
  return kind === "float" && dtypes[promoted].kind !== "float" ? "f32" : promoted;
}
