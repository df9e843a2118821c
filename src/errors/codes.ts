/**
 * The closed list of error codes. One row per code: its meaning, and what usually helps. `docs/errors.md` and `holdfast
 * explain` are generated from this table.
 */

export interface ErrorRow {
  readonly meaning: string;
  readonly help: string;
  /**
   * `rejected` or `diverged` if the same command would fail again, `rankLost` if another process is at fault. Default: `failed`.
   * `exit-codes.ts` has the numbers.
   */
  readonly exit?: "rejected" | "diverged" | "rankLost";
}

/** All error codes with their meaning and help. */
export const errorCodes = {
  // Invalid requests
  BAD_SETTING: {
    meaning: "An option or a HOLDFAST_… variable is unknown, malformed or out of range.",
    help: "Correct or remove the setting; `holdfast settings` lists them all.",
    exit: "rejected",
  },
  BAD_SIZE: {
    meaning: "A byte count is zero, negative, fractional, or not written as 512MiB, 1.5GiB or 64GiB.",
    help: "Pass a positive size; write a number of bytes as 4096B.",
    exit: "rejected",
  },
  BAD_ARGUMENT: {
    meaning: "A call got an invalid argument, such as a span outside its owner or two lengths that differ.",
    help: "The message names the argument, its value and what is valid.",
    exit: "rejected",
  },
  CLOSED: {
    meaning: "The runtime, driver, stream, event, kernel or graph was closed before this call.",
    help: "Open a new one; nothing is usable after close().",
  },
  UNSUPPORTED: {
    meaning: "This device, this version of Node.js, vmap or ONNX does not support the request.",
    help: "The message says what is missing and what provides it.",
    exit: "rejected",
  },

  // Tensors and their ops
  BAD_SHAPE: {
    meaning: "An op got shapes, axes or sizes that do not fit together.",
    help: "The message has the op, the shapes and what is valid.",
    exit: "rejected",
  },
  BAD_DTYPE: {
    meaning: "An op got a dtype that it does not support, or a value outside the range of its dtype.",
    help: "Convert first, with tensor.to(dtype); the message lists the supported dtypes.",
    exit: "rejected",
  },
  BAD_INDEX: {
    meaning: "An index is outside its axis, or a label outside the classes.",
    help: "The message has the first invalid index and the valid range; correct the data.",
    exit: "rejected",
  },
  DEAD_TENSOR: {
    meaning:
      "A tensor was used after its step had ended, or a compiled step's result after the step's next call.",
    help: "Use it inside its step or before the next call, or copy it with keep() before the step ends.",
  },
  NO_DEVICE: {
    meaning: "A tensor was created, or a module used, before it had a device.",
    help: 'Open one with `await device("cpu")`; move a module to it with to().',
    exit: "rejected",
  },
  OTHER_DEVICE: {
    meaning: "Two tensors of one op are on different devices, or on a closed device.",
    help: "Create both on one device.",
    exit: "rejected",
  },
  NO_GRADIENT: {
    meaning:
      "backward() cannot compute a gradient: nothing requires one, an op has none, an op's gradient can't be differentiated again (createGraph), the graph ended with its step, or the input of a compiled " +
      "step has a graph.",
    help: "The message says which. Set requiresGrad, call backward() inside the step, or pass detach() of an input.",
    exit: "rejected",
  },
  NOT_TRACEABLE: {
    meaning:
      "A compiled step did something that cannot be traced: it read a value, waited, uploaded data, drew random numbers on the host, " +
      "called keep() or schedule.step(), or returned something other than tensors.",
    help: "Return the tensor and read it outside the step; set rates and upload data before the call.",
    exit: "rejected",
  },
  STEP_CHANGED: {
    meaning: "A compiled step was traced again as a check, and did different work than in its first trace.",
    help: "Pass changing data as a tensor, make it a public field of a module and set it outside the step, or compile a step for each case.",
  },
  SAVED_CHANGED: {
    meaning: "A tensor that backward still needs was written to in place.",
    help: "Use the op that returns a new tensor, or write after backward().",
    exit: "rejected",
  },
  BACKWARD_TWICE: {
    meaning: "backward() reached a graph whose saved tensors an earlier backward() had released.",
    help: "Add the losses and call backward() once, or run the forward pass again.",
    exit: "rejected",
  },
  NOT_FINITE: {
    meaning: "A NaN or an infinity was found where training would have continued with it.",
    help: "The message says where it first appeared: a row of the data, an op, or the gradients' norm. Correct the data, or lower the learning rate.",
    exit: "rejected",
  },
  SINGULAR_MATRIX: {
    meaning:
      "A matrix has no inverse, no unique solution or no Cholesky decomposition. The message has its place in the batch.",
    help: "Add a multiple of the identity, or use linalg.lstsq or linalg.pinv. In a compiled step the results of such a matrix are NaN instead.",
    exit: "rejected",
  },
  DIVERGED: {
    meaning:
      "Training has diverged: most steps of an epoch had non-finite gradients, or a loss was not finite.",
    help: "The message has the epoch and the counts. Start a new run with a smaller learning rate, or check the data.",
    exit: "diverged",
  },
  BAD_STATE: {
    meaning:
      "A saved state (a state dict, a checkpoint, a loader's or a random state) does not fit the object that it is loaded into.",
    help:
      "The message lists the differences. Create the objects as they were when the state was saved; loadWeights and loadStateDict of a " +
      "module also take strict: false.",
    exit: "rejected",
  },

  // Files
  BAD_FILE: {
    meaning: "A file is truncated, altered or of another format, or cannot be read or written.",
    help: "The message has the file and the problem; create or download the file again.",
    exit: "rejected",
  },
  RUN_LOCKED: {
    meaning: "Another process is writing to this run's folder.",
    help: "Wait for that process or stop it, or use another folder for this run.",
  },

  RUN_LOST: {
    meaning: "A run's folder was removed or moved while the run wrote to it.",
    help: "Put the folder back and resume the run, or run the command again to start a new one.",
  },

  // Out of memory
  OUT_OF_BUDGET: {
    meaning: "The memory budget is exhausted. Holdfast did not ask the device for more.",
    help: "See the table of holders: raise HOLDFAST_MEMORY, keep fewer tensors, or use a smaller batch.",
  },
  OUT_OF_MEMORY: {
    meaning:
      "The device could not provide memory that the budget allows, or the host had no memory for an upload.",
    help: "Another program may use the memory: end it, or lower HOLDFAST_MEMORY. For an upload, create smaller tensors.",
  },
  ARENA_FULL: {
    meaning: "The request exceeds the capacity of the step arena.",
    help: "The message says why: mis-sized (raise HOLDFAST_ARENA), never reset (use a step scope), or truly full.",
  },

  // Misuse of memory
  DEAD_STORAGE: {
    meaning: "A storage was used after its step, its reset or its free.",
    help: "Pin a storage that must outlive its step, or read it inside the step.",
  },
  DOUBLE_FREE: {
    meaning: "A storage was freed a second time.",
    help: "Free a storage once; the end of the step frees the rest.",
  },
  NOT_OWNER: {
    meaning: "A storage was passed to an owner that did not allocate it, or with a changed address or size.",
    help: "Pass the storage object that the allocation returned, to the arena or region that returned it.",
  },
  VIEW_NOT_OWNER: {
    meaning: "A view was freed as if it owned its bytes.",
    help: "Drop the view, or free its owner.",
  },
  HAS_VIEWS: {
    meaning: "A storage was freed while views of it are alive.",
    help: "Drop the views first; a view keeps its owner alive.",
  },
  PINNED: {
    meaning: "A pinned storage was freed.",
    help: "Unpin it first; the message names the holder.",
  },
  NOT_PINNED: {
    meaning: "A storage without pins was unpinned.",
    help: "Call unpin once per pin.",
  },
  STEP_NESTED: {
    meaning: "A step was opened, or the arena reset, inside an open step.",
    help: "End the step first; steps do not nest.",
  },
  STEP_ASYNC: {
    meaning: "A step's callback was async: its memory would be freed while it still runs.",
    help: "Await before or after the step, never inside.",
  },

  // Ordering and capture
  UNORDERED_ACCESS: {
    meaning: "Two streams, or a stream and the host, access the same bytes without ordering.",
    help: "Order them with an event, or synchronize before the host access.",
  },
  DEAD_ADDRESS: {
    meaning: "A copy, fill, kernel or graph accesses an address outside the live spans.",
    help: "A storage was freed too early, or a size is wrong; the message has the address and the call.",
  },
  FOREIGN_MEMORY: {
    meaning:
      "A copy used host memory that is not pinned by the driver: it could move or be garbage-collected.",
    help: "Copy through the staging ring, as upload() and read() do.",
  },
  CAPTURE_REJECTED: {
    meaning: "A call was made that is illegal inside a capture.",
    help: "Do it before the capture; the message names the call and the op.",
  },
  CAPTURE_ORDER: {
    meaning:
      "A capture was started inside another, ended without a start, or ended before its side streams were joined.",
    help: "Capture through runtime.capture(), one at a time.",
  },
  CAPTURE_NODES: {
    meaning: "The captured graph has memory or host nodes, or differs from the recorded work.",
    help: "Move host callbacks and allocations out of the captured function.",
  },
  CAPTURE_MISMATCH: {
    meaning: "A replay gave different bits than the same work run directly.",
    help: "The message names the first buffer that differs. Make the captured function do the same work on the same memory every time.",
  },

  // Compiled steps
  PLAN_REJECTED: {
    meaning:
      "The verifier found an error in a compiled step's schedule or memory plan; the step did not run.",
    help:
      "Holdfast first tries the plan with fewer passes. You see this if that did not help, or if onRejectedPlan is error. " +
      "Report it with the whole message. The same function runs without compile().",
  },

  // Several processes
  RANK_LOST: {
    meaning:
      "Another process of a distributed run has ended, failed or stopped answering, or can't be reached.",
    help: "The message names the rank, its host, and what it did last. Its own output has the cause. Start all ranks again: a run resumes from its last checkpoint.",
    exit: "rankLost",
  },
  RANKS_DIFFER: {
    meaning:
      "The processes of a distributed run do different work: other programs, versions, settings, devices or data.",
    help: "The message names the rank that differs, and how. Start every rank with the same program, settings and version.",
    exit: "rejected",
  },

  // The machine
  NO_CUDA: {
    meaning: "No GPU is usable: the NVIDIA driver, a CUDA library or the device is missing.",
    help: "The message says what is missing and which package provides it; `holdfast doctor` checks the whole machine.",
    exit: "rejected",
  },
  DRIVER_FAILED: {
    meaning: "A driver call failed; the message has its name and its error.",
    help: "The message says what to do; `holdfast doctor` shows whether the machine works.",
  },
  KERNEL_FAILED: {
    meaning: "A kernel did not compile, did not load, or trapped.",
    help: "The message names the kernel and the compiler's error or the trap; the strict driver finds an invalid access.",
  },
  UPLOAD_CORRUPT: {
    meaning: "Uploaded bytes had a different checksum when read back.",
    help: "Report it with the message: the source changed during the upload, or the machine is faulty.",
  },
  STALLED: {
    meaning: "A phase or a driver call did not end within HOLDFAST_STALL_AFTER.",
    help:
      "See the stall report: it names the phase, the call, the op and what the threads wait for. Only the test driver throws this " +
      "error: a real stall is reported, and with HOLDFAST_ON_STALL=end it ends the process with exit code 86.",
  },
} as const satisfies Record<string, ErrorRow>;

/** A code of a `HoldfastError`. */
export type ErrorCode = keyof typeof errorCodes;
