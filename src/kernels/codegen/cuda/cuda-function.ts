/** CUDA kernels whose parameters have names: the order of the record's keys is their order, in the text and in launches. */

import {
  type CudaCode,
  isMemory,
  type KernelSource,
  type Parameter,
  type TensorMap,
} from "../../../driver/index.js";
import { awaiting, awaitingFirst, boundsOf } from "./kernel-text.js";

/** The C++ types that memory parameters point to, by name; the rest point to `elements`. */
type Pointers<Name extends string> = Readonly<Partial<Record<Name, string>>>;

/** A `TensorMap` whose parameters go by their names; it is of the parameter under whose name it stands. */
export interface NamedTensorMap<Name extends string> extends Pick<TensorMap, "dtype" | "box"> {
  readonly columns: Name;
  readonly rows: Name;
  readonly rowStride: Name;
  readonly matrices: Name;
  readonly matrixStride: Name;
}

type NamedTensorMaps<Name extends string> = Readonly<Partial<Record<Name, NamedTensorMap<Name>>>>;

export interface CudaKernel<Name extends string> {
  readonly name: string;
  readonly parameters: Readonly<Record<Name, Parameter>>;
  readonly elements: string;
  readonly pointers?: Pointers<Name>;
  readonly threads: number;
  readonly onlyFor?: string;
  readonly sharedBytes?: number;
  /** How many blocks make a cluster, where they do; a launch has a multiple of that. */
  readonly cluster?: number;
  /** Is a multiprocessor its block's alone? Compilers know then how many registers a thread has at first, which a kernel may change. */
  readonly isAlone?: boolean;
  /** Memory parameters that are no pointers but maps, of the type `TensorMap`, which the declarations have. */
  readonly maps?: NamedTensorMaps<NoInfer<Name>>;
  /** What stands before the kernel: constants and functions, all of internal linkage. */
  readonly declarations?: string;
  readonly body: string;
}

const scalars = { i32: "int", u32: "unsigned", f32: "float", f64: "double" } as const;

/** What C++ calls the elements of a dtype. Integers are unsigned here, so that their sums wrap round. */
export const cudaTypes = { f32: "float", f64: "double", i32: "unsigned" } as const;

/** A kernel of CUDA C++: its head is made of the parameters, the rest is given. */
export function cudaKernel<Name extends string>(
  kernel: CudaKernel<Name>,
): KernelSource & { readonly cuda: CudaCode } {
  const { name, parameters, elements, pointers = {}, threads, declarations = "", body } = kernel;
  const { onlyFor, sharedBytes, cluster, isAlone } = kernel;
  const names = Object.keys(parameters) as Name[];
  const maps = kernel.maps && numberMaps(names, kernel.maps);
  const ofMaps = new Set(
    Object.values<NamedTensorMap<Name> | undefined>(kernel.maps ?? {}).flatMap(figuresOf),
  );
  const mentioned = new Set<string>(body.match(/\w+/g));
  const entry = `hf_${name.replaceAll(/[^A-Za-z0-9]+/g, "_")}`;
  const signature = names.map((parameter, number) => {
    const kind: Parameter = parameters[parameter];
    const pointed = (pointers as Pointers<Name>)[parameter] ?? elements;
    if (maps?.some((map) => map.parameter === number))
      return `const __grid_constant__ TensorMap ${parameter}`;
    if (kind === "in") return `const ${pointed}* ${parameter}`;
    if (isMemory(kind)) return `${pointed}* ${parameter}`;
    // What only a map is made of has no name, or compilers would point at it.
    const isNamed = mentioned.has(parameter) || !ofMaps.has(parameter);
    return isNamed ? `${scalars[kind]} ${parameter}` : scalars[kind];
  });
  const clusters = cluster === undefined ? "" : `__cluster_dims__(${cluster}, 1, 1) `;
  const bounds = boundsOf(threads, isAlone ? 1 : undefined);
  const head = `extern "C" __global__ void ${clusters}${bounds} ${entry}(${signature.join(", ")})`;
  const waiting = mentioned.has("gridDependencyWait") ? "" : awaitingFirst;
  return {
    name,
    parameters: names.map((parameter) => parameters[parameter]),
    cuda: {
      entry,
      threads,
      ...(onlyFor && { onlyFor }),
      ...(sharedBytes !== undefined && { sharedBytes }),
      ...(maps && { maps }),
      waits: true,
      code: `${awaiting}${`${declarations.trim()}\n\n${head}`.trimStart()} {\n${waiting}${withoutMargin(body)}\n}\n`,
    },
  };
}

function figuresOf<Name extends string>(map: NamedTensorMap<Name> | undefined): readonly Name[] {
  return map ? [map.columns, map.rows, map.rowStride, map.matrices, map.matrixStride] : [];
}

/** Maps with the numbers of their parameters instead of names, in the parameters' order. */
function numberMaps<Name extends string>(
  names: readonly Name[],
  maps: NamedTensorMaps<Name>,
): readonly TensorMap[] {
  return names.flatMap((name, parameter) => {
    const map = maps[name];
    if (!map) return [];
    const { dtype, box, columns, rows, rowStride, matrices, matrixStride } = map;
    return {
      ...{ parameter, dtype, box },
      ...{ columns: names.indexOf(columns), rows: names.indexOf(rows), rowStride: names.indexOf(rowStride) },
      ...{ matrices: names.indexOf(matrices), matrixStride: names.indexOf(matrixStride) },
    };
  });
}

/** Takes empty lines off both ends. */
function withoutMargin(code: string): string {
  return code.trimEnd().replace(/^\n+/, "");
}
