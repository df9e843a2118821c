/** The keys, in a dialog. */

import { useEffect, useRef } from "preact/hooks";

const keys: readonly (readonly [string, string])[] = [
  ["1 … 5", "Learning, Speed, Memory, Incidents, About this run"],
  ["/", "find: tensors in Memory, runs elsewhere"],
  ["← →", "in a chart: from point to point; in tabs and passes: the one beside"],
  ["Shift ← →", "in a zoomed chart: move along"],
  ["← → ↑ ↓", "in the picture of memory: to the tensor beside; in tables: from row to row"],
  ["Enter", "in the picture and in tables: keep what is chosen"],
  ["+ −", "zoom; 0 or Escape shows everything"],
  ["wheel, drag", "zoom a chart; double-click shows everything"],
  ["?", "this list"],
];

export function HelpDialog({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen && !dialog.current?.open) dialog.current?.showModal();
    if (!isOpen && dialog.current?.open) dialog.current.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} onClose={onClose} aria-label="Keys">
      <h2>Keys</h2>
      <dl class="facts">
        {keys.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={onClose}>
        Close
      </button>
    </dialog>
  );
}
