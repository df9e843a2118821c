/** The doctor's report as text. It is written row by row, so that a hang shows where it happened. */

import type { LibraryTrial } from "../../distributed/index.js";
import type { CudaLibraryInfo } from "../../driver/index.js";
import { formatBytes, formatDuration } from "../../units/index.js";
import type { DeviceFacts, DoctorListener, DoctorReport } from "./doctor.js";
import type { CudaFacts, GpuFacts } from "./gpus.js";
import type { MachineFacts } from "./machine.js";
import { type DoctorPhase, type PhaseResult, phaseNames } from "./phase-log.js";
import type { RankFacts } from "./ranks.js";
import { nodesText, type StepFigures } from "./smoke-test.js";

const nameWidth = 14;
const outcomeWidth = 7;
const timeWidth = 7;
const deadlineWidth = 9;

const libraryNames: Readonly<Record<CudaLibraryInfo["library"], string>> = {
  cuda: "driver",
  nvrtc: "NVRTC",
  cublasLt: "cuBLASLt",
};

export interface TextReportOptions {
  /** Holdfast's version. */
  readonly version: string;
  /** Max. line length. */
  readonly columns: number;
  readonly write: (text: string) => void;
}

export class TextReport implements DoctorListener {
  readonly #options: TextReportOptions;

  constructor(options: TextReportOptions) {
    this.#options = options;
  }

  examined(machine: MachineFacts, cuda: CudaFacts, ranks: RankFacts): void {
    this.#options.write(`holdfast ${this.#options.version}\n`);
    this.#heading("machine");
    this.#writeMachine(machine);
    this.#heading("CUDA");
    this.#writeCuda(cuda);
    this.#heading("several processes");
    this.#writeRanks(ranks);
    this.#heading("test");
  }

  opened({ kind, insteadOfGpu, blas, rejectedBlas }: DeviceFacts): void {
    if (insteadOfGpu !== null) this.#row("", "No GPU is usable (see above), so the test runs on the CPU.");
    if (kind !== "cpu") return;
    this.#row(
      "BLAS",
      blas ? `${blas.name}, ${blas.library}` : "none: Holdfast's kernels compute all products",
    );
    for (const rejected of rejectedBlas) this.#row("", `not used: ${rejected}`);
  }

  entered(name: DoctorPhase): void {
    this.#options.write(`  ${name.padEnd(nameWidth)}`);
  }

  left({ name, outcome, elapsedMs, deadlineMs, detail, failure }: PhaseResult): void {
    // The name of a started phase is already printed; a skipped phase was never started.
    if (outcome === "skipped") {
      this.#row(name, outcome);
      return;
    }
    const shownOutcome = (outcome === "failed" ? "FAILED" : outcome).padEnd(outcomeWidth);
    const elapsed = formatDuration(elapsedMs).padStart(timeWidth);
    const deadline = ` of ${formatDuration(deadlineMs)}`.padEnd(deadlineWidth);
    const start = shownOutcome + elapsed + deadline;
    const text = [detail, failure].filter((sentence) => sentence !== "").join(". ");
    this.#options.write(`${start}${this.#wrap(text, 2 + nameWidth + start.length)}\n`);
  }

  ended({ passed, phases, step, elapsedMs }: DoctorReport): void {
    if (step) this.#writeStep(step);
    const named = (outcome: PhaseResult["outcome"]): string[] =>
      phases.filter((phase) => phase.outcome === outcome).map(({ name }) => name);
    const skipped = named("skipped").length;
    const took = formatDuration(elapsedMs);
    const faults = `FAILED: ${named("failed").join(", ")}${skipped > 0 ? `; ${skipped} skipped` : ""}`;
    this.#options.write(
      passed ? `\nAll ${phaseNames.length} phases passed, in ${took}.\n` : `\n${faults}, in ${took}.\n`,
    );
  }

  #writeMachine(machine: MachineFacts): void {
    const { system, release, architecture, node, processor, threads, cgroupCpus, memory, settings } = machine;
    const { totalBytes, availableBytes, cgroupLimitBytes, cgroupUsedBytes } = memory;
    const limits = [
      ...(cgroupLimitBytes === null
        ? []
        : [`limit ${formatBytes(cgroupLimitBytes)}, ${formatBytes(cgroupUsedBytes ?? 0)} in use`]),
      ...(cgroupCpus === null ? [] : [`${Number(cgroupCpus.toFixed(2))} CPUs`]),
    ];
    const set = Object.entries(settings).map(([name, text]) => `${name}=${text}`);
    this.#row("system", `${system} ${release}, ${architecture}, Node ${node}`);
    this.#row("processor", `${processor}, ${threads} ${threads === 1 ? "thread" : "threads"}`);
    this.#row("memory", `${formatBytes(totalBytes)}, ${formatBytes(availableBytes)} available`);
    this.#row("control group", limits.join("; ") || "no limit");
    this.#row("settings", set.join(", ") || "none in the environment");
  }

  #writeCuda({ libraries, gpus, problem, kernelCache }: CudaFacts): void {
    for (const library of libraries) {
      const name = libraryNames[library.library];
      if ("problem" in library) this.#row(name, library.summary);
      else if (library.library === "cuda") this.#row(name, `for CUDA ${library.version}, ${library.path}`);
      else this.#row(name, `${library.version}, ${library.path}`);
    }
    for (const gpu of gpus) this.#writeGpu(gpu);
    // A missing library is already printed.
    if (problem !== null && !libraries.some((library) => "problem" in library && library.problem === problem))
      this.#row("GPUs", problem);
    this.#row("kernel cache", kernelCache);
  }

  /** They are optional, so a problem is no failure. */
  #writeRanks({ mpi, nccl }: RankFacts): void {
    const textOf = (trial: LibraryTrial): string =>
      "problem" in trial ? trial.problem : `${trial.name}; works with one rank`;
    this.#row("MPI", textOf(mpi));
    this.#row("NCCL", nccl ? textOf(nccl) : "no GPU to try it on");
  }

  #writeGpu({ index, name, computeCapability, memory, multiprocessors, totalBytes, opened }: GpuFacts): void {
    this.#row(
      `GPU ${index}`,
      `${name}, compute capability ${computeCapability}, ${multiprocessors} multiprocessors`,
    );
    const size = `${formatBytes(totalBytes)} of ${memory} memory`;
    if ("problem" in opened) {
      this.#row("", size);
      this.#row("", opened.problem);
      return;
    }
    const { freeBytes, budgetBytes, reason, allocation } = opened;
    const how = allocation === "virtual" ? "mapped in chunks (virtual memory API)" : "allocated at once";
    this.#row("", `${size}, ${formatBytes(freeBytes)} free, ${how}`);
    this.#row("", `default budget ${formatBytes(budgetBytes)} (${reason})`);
  }

  #writeStep(step: StepFigures): void {
    const { batch, eagerMs, replayedMs, eagerBytes, replayedBytes } = step;
    const moved = ({ up, down }: StepFigures["eagerBytes"]): string =>
      `${formatBytes(up)} up, ${formatBytes(down)} down`;
    this.#heading("step");
    this.#row("eager", `${formatDuration(eagerMs)} at batch ${batch}; ${moved(eagerBytes)}`);
    this.#row("replayed", `${formatDuration(replayedMs)} at batch ${batch}; ${moved(replayedBytes)}`);
    this.#row("graph", nodesText(step));
  }

  #heading(text: string): void {
    this.#options.write(`\n${text}\n`);
  }

  #row(name: string, text: string): void {
    this.#options.write(`  ${name.padEnd(nameWidth)}${this.#wrap(text, 2 + nameWidth)}\n`);
  }

  /** Wraps a text between words and aligns its lines. */
  #wrap(text: string, start: number): string {
    const lines = [""];
    for (const word of text.split(/\s+/)) {
      const line = lines.pop() ?? "";
      const longer = line === "" ? word : `${line} ${word}`;
      if (line === "" || start + longer.length <= this.#options.columns) lines.push(longer);
      else lines.push(line, word);
    }
    return lines.join(`\n${" ".repeat(start)}`);
  }
}
