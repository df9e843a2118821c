/** The cases of the oracles as models to export: functions and methods of tensors, layers, linear algebra, recurrent layers. */

import { type Device, nn, type Tensor, tensor } from "holdfast";
import { toCamelCase } from "../../../scripts/coverage/coverage.js";
import { type AlgebraCall, type Arguments, algebraCalls } from "../algebra-calls.js";
import { layerCalls, moduleCalls } from "../layer-calls.js";
import { callMethod, methodCases, methodFiles } from "../method-calls.js";
import { readRepositoryFile } from "../repository.js";

export interface OracleModel {
  readonly kind: "methods" | "functions" | "modules" | "linear algebra" | "recurrent layers";
  readonly name: string;
  readonly inputs: readonly Tensor[];
  run(inputs: readonly Tensor[]): unknown;
}

interface Listed {
  readonly shape: readonly number[];
  readonly dtype?: "float" | "i32" | "bool";
  readonly values: readonly number[];
}

interface Case {
  readonly op: string;
  readonly attrs: Readonly<Record<string, unknown>>;
  readonly inputs: readonly (Listed | null)[];
}

const read = <Content>(file: string): Content =>
  JSON.parse(readRepositoryFile(`test/oracle/${file}.json`)) as Content;

/** All cases, in f32. */
export function oracleModels(device: Device): readonly OracleModel[] {
  const upload = ({ values, shape, dtype = "float" }: Listed): Tensor =>
    device.fromHost(values, shape, dtype === "float" ? "f32" : dtype);
  const given = (inputs: Case["inputs"]): readonly Tensor[] =>
    inputs.flatMap((input) => (input ? [upload(input)] : []));
  const methods = methodFiles.flatMap(methodCases).map((methodCase): OracleModel => {
    const inputs = methodCase.inputs.map(({ values, shape, dtype }) =>
      device.fromHost(values.map(Number), shape, dtype === "f64" ? "f32" : dtype),
    );
    return {
      kind: "methods",
      name: methodCase.name,
      inputs,
      run: (operands) => callMethod(methodCase, operands),
    };
  });
  const layers = read<{ readonly cases: readonly Case[]; readonly modules: readonly Case[] }>("layers");
  const functions = layers.cases.map(
    ({ op, attrs, inputs }): OracleModel => ({
      ...{ kind: "functions", name: op, inputs: given(inputs) },
      run: (operands) => {
        const next = operands.values();
        const placed = inputs.map((input) => (input ? next.next().value : undefined));
        return layerCalls[op]!(placed as unknown as [Tensor], attrs);
      },
    }),
  );
  const modules = layers.modules.map(({ op, attrs, inputs }): OracleModel => {
    const { module, call } = moduleCalls[op]!(attrs);
    module.to(device).eval();
    return { kind: "modules", name: op, inputs: given(inputs), run: (operands) => call([...operands]) };
  });
  const algebra = read<{
    readonly cases: readonly { op: string; args: Arguments; inputs: readonly Listed[] }[];
  }>("algebra").cases.map(
    ({ op, args, inputs }): OracleModel => ({
      ...{ kind: "linear algebra", name: op, inputs: given(inputs) },
      run: (operands) => (algebraCalls[op] as AlgebraCall)([...operands], args),
    }),
  );
  return [...methods, ...functions, ...modules, ...algebra, ...recurrentModels(device)];
}

type Nested = number | readonly Nested[];

interface RecurrentCase {
  readonly kind: "RNN" | "LSTM" | "GRU" | "RNNCell" | "LSTMCell" | "GRUCell";
  readonly options: Readonly<Record<string, unknown>>;
  readonly lengths: readonly number[] | null;
  readonly parameters: Readonly<Record<string, Nested>>;
  readonly x: Nested;
  readonly initial: readonly Nested[];
}

type RecurrentLayer = nn.Module & { forward(...operands: readonly unknown[]): unknown };

function recurrentModels(device: Device): readonly OracleModel[] {
  const upload = (values: Nested): Tensor => tensor(values as number[], { device });
  return read<{ readonly cases: readonly RecurrentCase[] }>("recurrent").cases.map(
    ({ kind, options, lengths, parameters, x, initial }): OracleModel => {
      const named = Object.entries(options).map(([name, value]) => [toCamelCase(name), value]);
      const Layer = nn[kind] as unknown as new (...values: readonly unknown[]) => RecurrentLayer;
      const layer = new Layer(2, 3, Object.fromEntries(named)).to(device).eval();
      const state = Object.entries(parameters).map(([name, values]) => [toCamelCase(name), upload(values)]);
      layer.loadStateDict(Object.fromEntries(state));
      return {
        ...{ kind: "recurrent layers", name: kind },
        inputs: [x, ...initial].map(upload),
        run: ([input, ...states]) => {
          const start = states.length === 0 ? null : kind.startsWith("LSTM") ? states : states[0];
          return layer.forward(input, start, ...(lengths ? [{ lengths }] : []));
        },
      };
    },
  );
}
