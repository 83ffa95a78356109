"""One folder per kind: view, plan, apply, status, controller. Siblings never import each other; shared words are in model/."""
