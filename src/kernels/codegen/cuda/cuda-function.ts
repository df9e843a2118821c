/** Hand-written CUDA kernels with named parameters: the order of the record's keys is the order of the parameters. */

import {
  type CudaCode,
  isMemory,
  type KernelSource,
  type Parameter,
  type TensorMap,
} from "../../../driver/index.js";
import { pdlDeclaration, pdlWait } from "./intrinsics/pdl.js";
import { launchBounds } from "./kernel-text.js";

/** The C++ element types of pointer parameters, by name; default: `elements`. */
type Pointers<Name extends string> = Readonly<Partial<Record<Name, string>>>;

/** A `TensorMap` that names its parameters; its key is the parameter that becomes the tensor map. */
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
  readonly requiredCapability?: string;
  readonly sharedBytes?: number;
  /** Blocks of a cluster; the grid is a multiple of it. */
  readonly cluster?: number;
  /** The minimum number of resident blocks per SM. setmaxnreg needs it, because it fixes the initial register count. */
  readonly blocksPerSm?: number;
  /** Memory parameters that are passed as tensor maps; `declarations` defines the type `TensorMap`. */
  readonly maps?: NamedTensorMaps<NoInfer<Name>>;
  /** Memory that the body reads before its `gridDependencyWait()`. */
  readonly early?: readonly NoInfer<Name>[];
  /** Constants and functions before the kernel, all of internal linkage. */
  readonly declarations?: string;
  readonly body: string;
}

const scalars = { i32: "int", u32: "unsigned", f32: "float", f64: "double" } as const;

/** The C++ element type of a dtype. Integers are unsigned, so that sums wrap. */
export const cudaTypes = { f32: "float", f64: "double", i32: "unsigned", i64: "unsigned long long" } as const;

/** Builds a kernel: the signature follows from the parameters. */
export function cudaKernel<Name extends string>(
  kernel: CudaKernel<Name>,
): KernelSource & { readonly cuda: CudaCode } {
  const { name, parameters, elements, pointers = {}, threads, declarations = "", body } = kernel;
  const { requiredCapability, sharedBytes, cluster, blocksPerSm, early } = kernel;
  const names = Object.keys(parameters) as Name[];
  const maps = kernel.maps && numberMaps(names, kernel.maps);
  const tensorMapSizes = new Set(
    Object.values<NamedTensorMap<Name> | undefined>(kernel.maps ?? {}).flatMap(sizesOf),
  );
  const mentioned = new Set<string>(body.match(/\w+/g));
  const entry = `hf_${name.replaceAll(/[^A-Za-z0-9]+/g, "_")}`;
  const signature = names.map((parameter, number) => {
    const kind: Parameter = parameters[parameter];
    const element = (pointers as Pointers<Name>)[parameter] ?? elements;
    if (maps?.some((map) => map.parameter === number))
      return `const __grid_constant__ TensorMap ${parameter}`;
    if (kind === "in") return `const ${element}* ${parameter}`;
    if (isMemory(kind)) return `${element}* ${parameter}`;
    // A size that only a tensor map needs has no name, or the compiler would warn.
    const isNamed = mentioned.has(parameter) || !tensorMapSizes.has(parameter);
    return isNamed ? `${scalars[kind]} ${parameter}` : scalars[kind];
  });
  const clusters = cluster === undefined ? "" : `__cluster_dims__(${cluster}, 1, 1) `;
  const bounds = launchBounds(threads, blocksPerSm);
  const head = `extern "C" __global__ void ${clusters}${bounds} ${entry}(${signature.join(", ")})`;
  const wait = mentioned.has("gridDependencyWait") ? "" : pdlWait;
  return {
    name,
    parameters: names.map((parameter) => parameters[parameter]),
    cuda: {
      entry,
      threads,
      ...(requiredCapability && { requiredCapability }),
      ...(sharedBytes !== undefined && { sharedBytes }),
      ...(maps && { maps }),
      hasGridDependencyWait: true,
      ...(early && { early: early.map((parameter) => names.indexOf(parameter)) }),
      code: `${pdlDeclaration}${`${declarations.trim()}\n\n${head}`.trimStart()} {\n${wait}${trimEmptyLines(body)}\n}\n`,
    },
  };
}

/** The parameters that a tensor map names. */
function sizesOf<Name extends string>(map: NamedTensorMap<Name> | undefined): readonly Name[] {
  return map ? [map.columns, map.rows, map.rowStride, map.matrices, map.matrixStride] : [];
}

/** Tensor maps with parameter numbers instead of names, in the order of the parameters. */
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

/** Removes empty lines at both ends. */
function trimEmptyLines(code: string): string {
  return code.trimEnd().replace(/^\n+/, "");
}
