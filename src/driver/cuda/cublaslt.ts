/**
 * GEMMs by cuBLASLt. The algorithm is selected when the kernel is loaded, from the library's heuristic list for the
 * shape, layout and alignment. Every launch then runs the same algorithm, so results repeat. Default: the first of the
 * list. Reductions whose order depends on timing are excluded.
 *
 * cuBLASLt is column-major and Holdfast row-major, so the library computes Cᵀ = op(B)ᵀ · op(A)ᵀ.
 */

import { HoldfastError } from "../../errors/index.js";
import { MiB, type Span } from "../../units/index.js";
import { requireLaunch, requireSpan } from "../checks.js";
import { biasAlignment, type GemmMatrix, type KernelSource, type LibraryGemm } from "../driver.js";
import type { Cuda } from "./calls.js";
import {
  blasOperation,
  computeType,
  dataType,
  epilogue,
  layoutAttribute,
  matmulAttribute,
  preferenceAttribute,
  reductionScheme,
} from "./constants.js";
import type { LoadedKernel } from "./kernels.js";
import { NativeBuffer } from "./native-buffer.js";
import { requireLive } from "./spans.js";
import { structs } from "./structs.js";

/** cuBLASLt's documented recommendation for Hopper. An algorithm that needs less gets less. */
const maxWorkspaceBytes = 32 * MiB;

/** Maximum number of algorithms; the heuristic lists the most promising first. */
const maxAlgorithms = 16;

const elementTypes = {
  f32: dataType.R_32F,
  f64: dataType.R_64F,
  f16: dataType.R_16F,
  bf16: dataType.R_16BF,
} as const;

const f32ComputeTypes = {
  f32: computeType["32F"],
  tf32: computeType["32F_FAST_TF32"],
  bf16: computeType["32F_FAST_16BF"],
} as const;

/** Every algorithm relies on it, and none reports it. */
const workspaceAlignment = 256;

const elementBytes = { f32: 4, f64: 8, f16: 2, bf16: 2 } as const;

/** cuBLASLt opened for one device: the handle, and state that all GEMMs share. */
export class CublasLt {
  readonly #cuda: Cuda;
  readonly #out = new NativeBuffer();
  #handle = 0;

  constructor(cuda: Cuda) {
    this.#cuda = cuda;
  }

  load(source: KernelSource, gemm: LibraryGemm): LoadedKernel {
    return new LoadedGemm(this.#cuda, this.#open(), source, gemm);
  }

  close(): void {
    if (this.#handle !== 0) this.#cuda.cublasLt.cublasLtDestroy(this.#handle);
    this.#handle = 0;
    this.#out.free();
  }

  #open(): number {
    if (this.#handle === 0) {
      this.#cuda.cublasLt.cublasLtCreate(this.#out.address);
      this.#handle = this.#out.u64();
    }
    return this.#handle;
  }
}

/** Offsets in a GEMM's block of native memory. */
const offsets = { alpha: 0, beta: 8, value: 16, count: 24, result: 32 } as const;

class LoadedGemm implements LoadedKernel {
  readonly parameters: KernelSource["parameters"];
  readonly workspaceBytes: number;
  readonly algorithmCount: number;
  readonly recordedNodes = "kernels";
  readonly #cuda: Cuda;
  readonly #handle: number;
  readonly #name: string;
  readonly #gemm: LibraryGemm;
  readonly #block = new NativeBuffer(offsets.result + structs.heuristicResult.size);
  /** Destructors, called in reverse order. */
  readonly #destructors: (() => void)[] = [];
  readonly #description: number;
  readonly #layouts: Readonly<Record<"a" | "b" | "c", number>>;

  constructor(cuda: Cuda, handle: number, { name, parameters }: KernelSource, gemm: LibraryGemm) {
    this.#cuda = cuda;
    this.#handle = handle;
    this.#name = name;
    this.#gemm = gemm;
    try {
      const { m, n, k, a, b, c, hasBias, biasBatchStride, resultDtype } = gemm;
      if (hasBias) this.#requireAligned("bias", biasBatchStride * elementBytes[resultDtype], biasAlignment);
      this.#description = this.#describe();
      this.#layouts = {
        a: this.#createLayout(a, gemm.dtype, a.isTransposed ? [k, m] : [m, k]),
        b: this.#createLayout(b, gemm.dtype, b.isTransposed ? [n, k] : [k, n]),
        c: this.#createLayout(c, gemm.resultDtype, [m, n]),
      };
      ({ algorithmCount: this.algorithmCount, workspaceBytes: this.workspaceBytes } =
        this.#selectAlgorithm());
    } catch (error) {
      this.unload();
      throw error;
    }
    this.parameters = this.workspaceBytes > 0 ? [...parameters, "out"] : parameters;
    const set = (offset: number, value: number): void =>
      gemm.dtype === "f64"
        ? this.#block.view.setFloat64(offset, value, true)
        : this.#block.view.setFloat32(offset, value, true);
    set(offsets.alpha, gemm.alpha);
    set(offsets.beta, gemm.beta);
  }

  launch(
    ...[stream, { arguments: args, blocks }, reservations, accessed]: Parameters<LoadedKernel["launch"]>
  ): void {
    requireLaunch(this.#name, this.parameters, blocks, args.length);
    const spans = args.map((argument, index): Span => {
      const what = () => `Argument ${index} of kernel "${this.#name}" (${this.parameters[index]})`;
      const span = requireSpan(argument, what);
      requireLive(reservations, span, what);
      accessed?.push(span);
      return span;
    });
    const { hasBias } = this.#gemm;
    const addressAt = (index: number): number => spans[index]?.address ?? 0;
    const [a, b, c] = [addressAt(0), addressAt(1), addressAt(2)];
    if (hasBias) this.#requireAligned("bias", addressAt(3), biasAlignment);
    const workspace = this.workspaceBytes > 0 ? spans.at(-1) : undefined;
    if (workspace) {
      if (workspace.size < this.workspaceBytes) throw this.#workspaceTooSmall(workspace.size);
      this.#requireAligned("workspace", workspace.address, workspaceAlignment);
    }
    if (blocks === 0) return;
    if (hasBias) {
      this.#block.setU64(addressAt(3), offsets.value);
      this.#set(matmulAttribute.BIAS_POINTER, 8);
    }
    const { address } = this.#block;
    const { a: aLayout, b: bLayout, c: cLayout } = this.#layouts;
    this.#cuda.cublasLt.cublasLtMatmul(
      this.#handle,
      this.#description,
      address + offsets.alpha,
      b,
      bLayout,
      a,
      aLayout,
      address + offsets.beta,
      c,
      cLayout,
      c,
      cLayout,
      address + offsets.result,
      workspace?.address ?? 0,
      this.workspaceBytes,
      stream,
    );
  }

  unload(): void {
    for (let destroy = this.#destructors.pop(); destroy; destroy = this.#destructors.pop()) destroy();
    this.#block.free();
  }

  #describe(): number {
    const { cublasLt } = this.#cuda;
    const { dtype, precision, a, b, hasBias, biasBatchStride, activation } = this.#gemm;
    const compute =
      dtype === "f64"
        ? computeType["64F"]
        : dtype === "f32"
          ? f32ComputeTypes[precision]
          : computeType["32F"];
    const scale = dtype === "f64" ? dataType.R_64F : dataType.R_32F;
    cublasLt.cublasLtMatmulDescCreate(this.#block.address, compute, scale);
    const description = this.#block.u64();
    this.#destructors.push(() => cublasLt.cublasLtMatmulDescDestroy(description));
    const set = (attribute: number, value: number): void => {
      this.#block.view.setInt32(offsets.value, value, true);
      cublasLt.cublasLtMatmulDescSetAttribute(description, attribute, this.#block.address + offsets.value, 4);
    };
    set(matmulAttribute.TRANSA, b.isTransposed ? blasOperation.T : blasOperation.N);
    set(matmulAttribute.TRANSB, a.isTransposed ? blasOperation.T : blasOperation.N);
    set(matmulAttribute.EPILOGUE, selectEpilogue(hasBias, activation));
    if (biasBatchStride > 0) {
      this.#block.setU64(biasBatchStride, offsets.value);
      const value = this.#block.address + offsets.value;
      cublasLt.cublasLtMatmulDescSetAttribute(description, matmulAttribute.BIAS_BATCH_STRIDE, value, 8);
    }
    return description;
  }

  /** Creates the layout of a matrix stored as rows × columns. */
  #createLayout(
    { rowStride, batchStride }: GemmMatrix,
    dtype: LibraryGemm["dtype"],
    [rows, columns]: readonly [number, number],
  ): number {
    const { cublasLt } = this.#cuda;
    const { batch } = this.#gemm;
    // The library requires a valid leading dimension even for a single row.
    const leading = Math.max(rowStride, columns, 1);
    cublasLt.cublasLtMatrixLayoutCreate(this.#block.address, elementTypes[dtype], columns, rows, leading);
    const layout = this.#block.u64();
    this.#destructors.push(() => cublasLt.cublasLtMatrixLayoutDestroy(layout));
    if (batch > 1) {
      const value = this.#block.address + offsets.value;
      this.#block.setU64(batch, offsets.value);
      cublasLt.cublasLtMatrixLayoutSetAttribute(layout, layoutAttribute.BATCH_COUNT, value, 4);
      this.#block.setU64(batchStride, offsets.value);
      cublasLt.cublasLtMatrixLayoutSetAttribute(layout, layoutAttribute.STRIDED_BATCH_OFFSET, value, 8);
    }
    return layout;
  }

  /**
   * Selects the algorithm, which stays in the block. Returns the number of candidates and the selected one's workspace
   * size.
   */
  #selectAlgorithm(): Pick<LoadedKernel, "algorithmCount" | "workspaceBytes"> {
    const { size } = structs.heuristicResult;
    const list = new NativeBuffer(maxAlgorithms * size);
    try {
      const candidates = this.#askHeuristic(list).map((offset) => ({
        offset,
        ...structs.heuristicResult.read(list.view, offset),
      }));
      const usable = candidates.filter(({ state }) => state === 0);
      if (usable.length === 0) throw this.#noAlgorithm(candidates[0]?.state ?? 0);
      const { algorithm = 0 } = this.#gemm;
      const selected = usable[algorithm];
      if (!selected) throw this.#unknownAlgorithm(algorithm, usable.length);
      this.#block.bytes.set(list.bytes.subarray(selected.offset, selected.offset + size), offsets.result);
      return { algorithmCount: usable.length, workspaceBytes: selected.workspaceSize };
    } finally {
      list.free();
    }
  }

  /** Fills `list` with the candidates of the heuristic, best first. Returns the offset of each. */
  #askHeuristic(list: NativeBuffer): readonly number[] {
    const { cublasLt } = this.#cuda;
    const block = this.#block;
    cublasLt.cublasLtMatmulPreferenceCreate(block.address);
    const preference = block.u64();
    const set = (attribute: number, value: number, size: 4 | 8): void => {
      block.setU64(value, offsets.value);
      cublasLt.cublasLtMatmulPreferenceSetAttribute(
        preference,
        attribute,
        block.address + offsets.value,
        size,
      );
    };
    try {
      const { a, b, c } = this.#gemm;
      set(preferenceAttribute.MAX_WORKSPACE_BYTES, maxWorkspaceBytes, 8);
      set(
        preferenceAttribute.REDUCTION_SCHEME_MASK,
        reductionScheme.COMPUTE_TYPE | reductionScheme.OUTPUT_TYPE,
        4,
      );
      set(preferenceAttribute.MIN_ALIGNMENT_A_BYTES, b.alignment, 4);
      set(preferenceAttribute.MIN_ALIGNMENT_B_BYTES, a.alignment, 4);
      set(preferenceAttribute.MIN_ALIGNMENT_C_BYTES, c.alignment, 4);
      set(preferenceAttribute.MIN_ALIGNMENT_D_BYTES, c.alignment, 4);
      const { a: aLayout, b: bLayout, c: cLayout } = this.#layouts;
      const status = cublasLt.status.cublasLtMatmulAlgoGetHeuristic(
        this.#handle,
        this.#description,
        bLayout,
        aLayout,
        cLayout,
        cLayout,
        preference,
        maxAlgorithms,
        list.address,
        block.address + offsets.count,
      );
      if (status !== 0) throw this.#noAlgorithm(status);
    } finally {
      cublasLt.cublasLtMatmulPreferenceDestroy(preference);
    }
    return Array.from(
      { length: block.i32(offsets.count) },
      (_, index) => index * structs.heuristicResult.size,
    );
  }

  /** Sets an attribute of the descriptor to the block's value slot. */
  #set(attribute: number, size: number): void {
    const value = this.#block.address + offsets.value;
    this.#cuda.cublasLt.cublasLtMatmulDescSetAttribute(this.#description, attribute, value, size);
  }

  /** A misaligned load would destroy the context. */
  #requireAligned(what: string, address: number, alignment: number): void {
    if (address % alignment === 0) return;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The ${what} of kernel "${this.#name}" starts ${address % alignment} bytes after a multiple of ${alignment}. cuBLASLt needs it aligned ` +
        `to ${alignment} bytes: copy it to aligned memory first.`,
      { numbers: { address, alignment } },
    );
  }

  /** The library trusts the stated workspace size and would write past its end. */
  #workspaceTooSmall(size: number): HoldfastError {
    return new HoldfastError(
      "BAD_ARGUMENT",
      `Kernel "${this.#name}" needs a workspace of ${this.workspaceBytes} bytes but got ${size}. Pass at least workspaceBytes.`,
      { numbers: { workspaceBytes: this.workspaceBytes, size } },
    );
  }

  #noAlgorithm(status: number): HoldfastError {
    const { m, n, k, batch } = this.#gemm;
    const { cublasLt } = this.#cuda;
    return new HoldfastError(
      "UNSUPPORTED",
      `cuBLASLt has no algorithm for ${this.#describeGemm()}: ${cublasLt.cublasLtGetStatusName(status)}. Change the layout, or ` +
        "use another dtype.",
      { numbers: { m, n, k, batch, status } },
    );
  }

  #unknownAlgorithm(algorithm: number, algorithmCount: number): HoldfastError {
    return new HoldfastError(
      "BAD_ARGUMENT",
      `cuBLASLt has ${algorithmCount} algorithms for ${this.#describeGemm()}; algorithm ${algorithm} (counted from 0) does not exist. ` +
        "Pass a smaller index; algorithmCount of the loaded kernel is their number.",
      { numbers: { algorithm, algorithmCount } },
    );
  }

  #describeGemm(): string {
    const { m, n, k, batch, dtype, precision, activation } = this.#gemm;
    return `a GEMM of ${m}×${n}×${k} (batch ${batch}, ${dtype}, ${precision}, activation ${activation})`;
  }
}

function selectEpilogue(hasBias: boolean, activation: LibraryGemm["activation"]): number {
  if (activation === "relu") return hasBias ? epilogue.RELU_BIAS : epilogue.RELU;
  if (activation === "gelu") return hasBias ? epilogue.GELU_BIAS : epilogue.GELU;
  return hasBias ? epilogue.BIAS : epilogue.DEFAULT;
}
