/**
 * The closed list of error codes. One row per code: what it means, and what usually helps.
 * `docs/errors.md` and `holdfast explain` are made from this table.
 */

export interface ErrorRow {
  readonly meaning: string;
  readonly help: string;
  /** `rejected` or `diverged` where the same command would fail again; default: `failed`. `exit-codes.ts` has their numbers. */
  readonly exit?: "rejected" | "diverged";
}

/** All error codes with their meaning and help. */
export const errorCodes = {
  // What a person or a program asked for
  BAD_SETTING: {
    meaning: "An option or a HOLDFAST_… variable is unknown, malformed or out of range.",
    help: "Correct or remove the setting; `holdfast settings` lists them all.",
    exit: "rejected",
  },
  BAD_SIZE: {
    meaning: "A byte count is zero, negative, fractional, or not written as 512MiB, 1.5GiB or 64GiB.",
    help: "Give a positive size; a number of bytes is written as 4096B.",
    exit: "rejected",
  },
  BAD_ARGUMENT: {
    meaning:
      "A call was given something it can't work with: a span outside its owner, two lengths that differ.",
    help: "The message names the argument, what it was and what would fit.",
    exit: "rejected",
  },
  CLOSED: {
    meaning: "The runtime, driver, stream, event, kernel or graph was closed before this call.",
    help: "Open a new one; nothing is usable after its close.",
  },
  UNSUPPORTED: {
    meaning: "This device or this Node.js can't do what was asked.",
    help: "The message says what is missing and what brings it.",
    exit: "rejected",
  },

  // Tensors and their ops
  BAD_SHAPE: {
    meaning: "An op was given shapes, axes or sizes that don't fit each other.",
    help: "The message has the op, the shapes and what would fit.",
    exit: "rejected",
  },
  BAD_DTYPE: {
    meaning: "An op was given a dtype that it has no meaning for, or a value that its dtype can't hold.",
    help: "Convert first, with tensor.to(dtype); the message says which dtypes fit.",
    exit: "rejected",
  },
  BAD_INDEX: {
    meaning: "An index points outside the axis that it selects from, or a label outside the classes.",
    help: "The message has the first wrong index and the range that is there; correct the data.",
    exit: "rejected",
  },
  DEAD_TENSOR: {
    meaning:
      "A tensor was used after the step that made it had ended, or a compiled step's result after the step's next call.",
    help: "Use it inside its step, or before the next call, or copy it with keep() outside the step.",
  },
  NO_DEVICE: {
    meaning: "A tensor was asked for, or a module used, before it had a device to live on.",
    help: 'Open one with `await device("cpu")`; move a module there with to().',
    exit: "rejected",
  },
  OTHER_DEVICE: {
    meaning: "Two tensors of one op live on different devices, or on a device that was closed.",
    help: "Make both on one device.",
    exit: "rejected",
  },
  NO_GRADIENT: {
    meaning:
      "A gradient can't flow: nothing requires one, an op has none, the graph ended with its step, or the input of a compiled " +
      "step has a graph.",
    help: "The message says which. Set requiresGrad, call backward() inside the step, or pass detach() of an input.",
    exit: "rejected",
  },
  NOT_TRACEABLE: {
    meaning:
      "A compiled step did something that a trace can't hold: it looked at a value, waited, uploaded data, drew on the host, " +
      "called keep() or schedule.step(), or returned something other than tensors.",
    help: "Return the tensor and read it outside the step; set rates and upload data before the call.",
    exit: "rejected",
  },
  STEP_CHANGED: {
    meaning:
      "A compiled step was traced again to check it, and did other work than when it was first traced.",
    help: "Pass what changes as a tensor, make it a public field of a module and set it outside the step, or compile a step for each case.",
  },
  SAVED_CHANGED: {
    meaning: "A tensor that backward still needs was written to in place.",
    help: "Use the form that makes a new tensor, or write after backward().",
    exit: "rejected",
  },
  BACKWARD_TWICE: {
    meaning: "backward() went through a graph whose saved tensors an earlier backward() had let go.",
    help: "Add the losses and call backward() once, or run the forward pass again.",
    exit: "rejected",
  },
  NOT_FINITE: {
    meaning: "A NaN or an infinity was found where training would go on with it.",
    help: "The message says where it first appeared: a row of the data, an op, or the gradients' norm.",
    exit: "rejected",
  },
  DIVERGED: {
    meaning:
      "A training has diverged: most steps of an epoch had gradients that were not finite, or a loss was not finite.",
    help: "The message has the epoch and the counts. Start a new run with a smaller learning rate, or look at the data.",
    exit: "diverged",
  },
  BAD_STATE: {
    meaning:
      "A saved state (a state dict, a checkpoint, a loader's or a random state) does not fit what it is loaded into.",
    help:
      "The message lists the differences. Make the parts as they were when it was saved; loadWeights and loadStateDict of a " +
      "module also take strict: false.",
    exit: "rejected",
  },

  // Files
  BAD_FILE: {
    meaning:
      "A file is not what it should be: truncated, altered, or of another format; or it can't be read or written at all.",
    help: "The message has the file and what is wrong with it; make or fetch the file again.",
    exit: "rejected",
  },
  RUN_LOCKED: {
    meaning: "Another process is writing to this run's folder.",
    help: "Wait for that process or stop it, or give this run another folder.",
  },

  RUN_LOST: {
    meaning: "A run's folder was removed or moved while the run wrote to it.",
    help: "Put the folder back and resume the run, or run the command again to begin a new one.",
  },

  // Memory runs out
  OUT_OF_BUDGET: {
    meaning: "The memory budget has no room; the device was not asked.",
    help: "Read the table of holders: raise HOLDFAST_MEMORY, hold less, or use a smaller batch.",
  },
  OUT_OF_MEMORY: {
    meaning:
      "The device rejected memory that the budget had allowed, or the host had no memory for an upload.",
    help: "Something else on this machine uses it; lower HOLDFAST_MEMORY or free the device. For an upload, create smaller tensors.",
  },
  ARENA_FULL: {
    meaning: "The step arena can't hold the request inside its capacity.",
    help: "The verdict says why: mis-sized (raise HOLDFAST_ARENA), never reset (use a step scope), or truly full.",
  },

  // Memory misused
  DEAD_STORAGE: {
    meaning: "A storage was used after its step, its reset or its free.",
    help: "Pin what must outlive a step, or read it inside the step.",
  },
  DOUBLE_FREE: {
    meaning: "A storage was freed a second time.",
    help: "Free a storage once; the end of the step frees what is left.",
  },
  NOT_OWNER: {
    meaning: "A storage was handed to an owner that did not make it, or with a changed address or size.",
    help: "Free the very storage that the allocation returned, to the arena or region that returned it.",
  },
  VIEW_NOT_OWNER: {
    meaning: "A view was freed as if it owned its bytes.",
    help: "Drop the view, or free its owner.",
  },
  HAS_VIEWS: {
    meaning: "A storage was freed while views of it are alive.",
    help: "Drop the views first; a view keeps its owner.",
  },
  PINNED: {
    meaning: "A pinned storage was freed.",
    help: "Unpin it first; the message says who pinned it.",
  },
  NOT_PINNED: {
    meaning: "A storage was unpinned that has no pin left.",
    help: "Unpin as often as you pinned.",
  },
  STEP_NESTED: {
    meaning: "A step was opened, or the arena reset, inside an open step.",
    help: "End the step first; a step is one flat scope.",
  },
  STEP_ASYNC: {
    meaning: "A step's callback was async: its memory would die while it still runs.",
    help: "Await before or after the step, never inside.",
  },

  // Order and capture
  UNORDERED_ACCESS: {
    meaning: "Two streams, or a stream and the host, touch the same bytes with nothing that orders them.",
    help: "Order them with an event, or synchronise before the host looks.",
  },
  DEAD_ADDRESS: {
    meaning: "A copy, fill, kernel or graph touches an address that no live span covers.",
    help: "A storage has died, or a size is wrong; the message has the address and the call.",
  },
  FOREIGN_MEMORY: {
    meaning: "A copy was asked from or to host memory that is not ours: it may move or be collected.",
    help: "Copy through the staging ring; upload() and read() do.",
  },
  CAPTURE_REJECTED: {
    meaning: "Something that is illegal inside a capture was called there.",
    help: "Do it before the capture; the message names the call and the op.",
  },
  CAPTURE_ORDER: {
    meaning:
      "A capture was begun inside another, ended without being begun, or ended before its branches were joined.",
    help: "Capture through runtime.capture(), one at a time.",
  },
  CAPTURE_NODES: {
    meaning: "The captured graph holds memory or host nodes, or not the work that was recorded.",
    help: "Take host call-backs and allocations out of the captured function.",
  },
  CAPTURE_MISMATCH: {
    meaning: "A replay gave other bits than the same work run directly.",
    help: "The captured function is not repeatable; the message names the first buffer that differs.",
  },

  // Compiled steps
  PLAN_REJECTED: {
    meaning:
      "The verifier found a fault in how a compiled step would run or where its memory would lie; nothing of it was run.",
    help:
      "Holdfast first tries the plan with fewer passes. You see this if that did not help, or if onRejectedPlan is error. " +
      "Report it with the whole message. The same function runs without compile().",
  },

  // The machine
  NO_CUDA: {
    meaning:
      "There is no GPU to work with: the NVIDIA driver, one of CUDA's libraries or the device itself is missing.",
    help: "The message says what is missing and which package brings it; `holdfast doctor` looks at the whole machine.",
    exit: "rejected",
  },
  DRIVER_FAILED: {
    meaning: "A driver call failed; its name and its own error stand in the message.",
    help: "Look at the cause; `holdfast doctor` shows whether the machine works at all.",
  },
  KERNEL_FAILED: {
    meaning: "A kernel did not compile, did not load, or trapped while running.",
    help: "The message names the kernel and the trap; run with the strict driver to find the address.",
  },
  UPLOAD_CORRUPT: {
    meaning: "Uploaded bytes read back with another checksum.",
    help: "Report it with the message: the source changed during the upload, or the machine is faulty.",
  },
  STALLED: {
    meaning: "A phase or a driver call did not end within HOLDFAST_STALL_AFTER.",
    help:
      "Read the stall report: it names the phase, the call, the op and what the threads wait for. Only the test driver throws this " +
      "error: a real stall is reported, and with HOLDFAST_ON_STALL=end it ends the process with exit code 86.",
  },
} as const satisfies Record<string, ErrorRow>;

/** A code of a `HoldfastError`. */
export type ErrorCode = keyof typeof errorCodes;
