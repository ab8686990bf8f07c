/* Mesa's shim of i915 and Xe, which takes buffers of no bytes: newer releases of ANV ask how large a page is by making one. */

#define drm_shim_bo_init buffer_of_a_page_or_more
#include "intel/tools/intel_noop_drm_shim.c"
#undef drm_shim_bo_init

int drm_shim_bo_init(struct shim_bo *buffer, size_t size);

int
buffer_of_a_page_or_more(struct shim_bo *buffer, size_t size)
{
   return drm_shim_bo_init(buffer, size ? size : 4096);
}
