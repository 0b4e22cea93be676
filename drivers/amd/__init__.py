"""AMD GPUs, from CDNA3 and RDNA3 on, over the kernel's KFD interface.

From below: `layouts` (every number) - `kfd` (the calls, their errors with cures) - `topology` (which GPUs
there are) - `memory` - `queues`, `ring` - `events` - `encode`, `program` - `faults` - `device`, `driver`.
"""
