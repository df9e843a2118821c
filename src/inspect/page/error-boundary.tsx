/** Shows the error of a view that fails; the other views still work. */

import { Component, type ComponentChildren } from "preact";

export class ErrorBoundary extends Component<{ readonly children: ComponentChildren }, { message?: string }> {
  override state: { message?: string } = {};

  override componentDidCatch(error: unknown): void {
    this.setState({ message: error instanceof Error ? error.message : String(error) });
  }

  override render() {
    const { message } = this.state;
    if (message === undefined) return this.props.children;
    return (
      <p class="banner" role="alert">
        This view failed: {message}. The other views still work.
      </p>
    );
  }
}
