//! Covey's provider of libfabric: where it is, and how MPI libraries are led to it.

use crate::mpi::Library;
use std::path::{Path, PathBuf};

/// The variable that names the file of the provider.
pub const LIBRARY: &str = "COVEY_FI_LIBRARY";

/// The directory of `libcovey-fi.so`: as `COVEY_FI_LIBRARY` names it, beside this program, or where `make install` puts it.
/// None where it is nowhere.
pub fn directory() -> Option<PathBuf> {
    let named = std::env::var_os(LIBRARY).map(PathBuf::from);
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let installed = beside.and_then(Path::parent).map(|above| above.join("lib/libfabric"));
    let near = [beside.map(Path::to_owned), installed].into_iter().flatten();
    let all = named.into_iter().chain(near.map(|directory| directory.join("libcovey-fi.so")));
    // The file may be a link to one of another name; libfabric wants this one.
    all.into_iter().find(|file| file.is_file())?.parent()?.canonicalize().ok()
}

/// The variables of one library, beside `FI_PROVIDER_PATH`, which all of them need.
pub fn variables(library: Library) -> &'static [(&'static str, &'static str)] {
    match library {
        Library::Openmpi => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_opal_common_ofi_provider_include", "covey"),
            // Windows would be UCX's, which finds nothing to send over between nodes here: MPI_ERR_WIN.
            ("OMPI_MCA_osc", "^ucx"),
        ],
        Library::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "covey")],
    }
}
