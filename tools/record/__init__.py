"""What a GPU computes for enumerated inputs, recorded once and compared for good: `python -m tools.record`.

A *form* is one instruction with its modifiers, or one exchange of several threads: text, inputs, layout of
the results, how far an emulated result may lie from silicon's and by which rule, and how doubtful it is
(`forms`). Forms are recorded in *shards*, the most doubtful first (`runner`), into a file that a later
command continues (`recording`). A file of silicon is kept as tests/golden/silicon/ARCH.xz; the emulated GPU
of that architecture must give the same (`compare`).

A vendor is a folder with a module like `tools.record.nv.vendor`, with a `VENDOR` (`vendors.Vendor`, which
describes each field). Its core is two functions:

    forms(arch)                     every form that the architecture can run, in any order
    kernels(forms, arch, folder)    `Kernel`s that run some of them: an image whose arguments are two pointers
                                    (out, in), its launch, its inputs, and where each form's results lie

`forms.Form` says what a form is; `forms.grid`, `forms.edges` and `forms.scattered` make inputs. Only names,
texts, inputs and layouts decide the key of a form; a form whose key has changed since it was recorded is
reported as such, and not compared. A vendor may pack forms with equal `Form.group` into one kernel.

Not here: random programs (`tests.fuzz`), the ladder of a new GPU (`tools.bringup`). Next: `forms`.
"""
