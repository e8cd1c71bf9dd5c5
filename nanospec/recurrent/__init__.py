"""Room: a target, or a draft model, whose layers keep one state and no slots. Lowering a length takes nothing out of a
state, so the cache keeps some earlier states too, and reads again what came after them. To the core it is a language
model like any other."""
