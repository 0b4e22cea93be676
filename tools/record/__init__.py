"""Recordings of what a GPU computes for enumerated inputs, and their comparison: `python -m tools.record`.

A *form* is one instruction with its modifiers, or one exchange of several threads. It has a text, inputs, the
layout of its results, and the rule by which an emulated result may differ from that of silicon (`forms`).
Forms are recorded in *shards* (`runner`), those first whose emulation is least certain. A later command can
continue the file (`recording`). A recording of silicon is kept as tests/golden/silicon/ARCH.xz.
The emulated GPU of that architecture must give the same results (`compare`).

A vendor is a folder with a module like `tools.record.nv.vendor`, with a `VENDOR` (`vendors.Vendor`, which
describes each field). Its core is two functions:

    forms(arch)                     every form that the architecture can run, in any order
    kernels(forms, arch, folder)    `Kernel`s that run some of them: an image whose arguments are two pointers
                                    (out, in), its launch, its inputs, and where each form's results lie

`forms.grid`, `forms.edges` and `forms.scattered` make inputs. The key of a form depends on its name, text,
inputs and layout. A form whose key has changed since it was recorded is reported as changed, and is not
compared. A vendor may pack forms with equal `Form.group` into one kernel.

Not here: random programs (`tests.fuzz`), the ladder of a new GPU (`tools.bringup`). Next: `forms`.
"""
