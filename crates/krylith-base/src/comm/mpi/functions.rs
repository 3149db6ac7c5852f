//! The MPI functions that Krylith uses. Each is declared once, as in MPI's header, and called with the
//! handles of whichever library was found.
//!
//! A handle is an integer in MPICH, and a pointer in Open MPI and the standard ABI. [`Handle`] holds either.
//! The functions are stored with the library's own types, and each call converts.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A communicator, request, datatype, operation or error handler of any library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(pub usize);

/// An address at which a library reads or writes handles of its own width.
#[derive(Debug, Clone, Copy)]
pub struct Handles(pub *mut c_void);

impl Handles {
    pub(super) fn at<T>(place: *mut T) -> Self {
        Self(place.cast())
    }
}

/// A library's type of handles.
pub trait Native: Copy {
    fn of(handle: Handle) -> Self;
    fn handle(self) -> Handle;
}

impl Native for c_int {
    fn of(handle: Handle) -> Self {
        handle.0 as c_int
    }
    fn handle(self) -> Handle {
        Handle(self as c_uint as usize)
    }
}

impl Native for *mut c_void {
    fn of(handle: Handle) -> Self {
        handle.0 as *mut c_void
    }
    fn handle(self) -> Handle {
        Handle(self as usize)
    }
}

/// Converts an argument to the type that a library with handles of type `H` takes.
pub trait Argument<H> {
    type Type;
    fn pass(self) -> Self::Type;
}

impl<H: Native> Argument<H> for Handle {
    type Type = H;
    fn pass(self) -> H {
        H::of(self)
    }
}

impl<H> Argument<H> for Handles {
    type Type = *mut H;
    fn pass(self) -> *mut H {
        self.0.cast()
    }
}

macro_rules! passed_as_they_are {
    ($($plain:ty),*) => {
        $(impl<H> Argument<H> for $plain {
            type Type = Self;
            fn pass(self) -> Self {
                self
            }
        })*
    };
}
passed_as_they_are!(c_int, *const c_void, *mut c_void, *mut c_int, *mut c_char, *mut *mut c_void);

/// An open library; finds its functions by name.
#[derive(Clone, Copy)]
pub struct Symbols(pub *mut c_void);

impl Symbols {
    pub fn find(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a handle of dlopen that is never closed, or RTLD_DEFAULT.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The functions of a library whose handles have type `H`. All return an error code.
        #[allow(non_snake_case)] // MPI's own names
        pub struct Functions<H: Native> {
            $($name: unsafe extern "C" fn($(<$type as Argument<H>>::Type),*) -> c_int,)*
        }

        impl<H: Native> Functions<H> {
            /// Finds all functions, or returns the name of the first that is missing.
            pub fn find(symbols: Symbols) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
                        let found = name.ok().and_then(|name| symbols.find(name)).ok_or(stringify!($name))?;
                        // SAFETY: the signatures below are those of the MPI standard with this library's
                        // handles.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($(<$type as Argument<H>>::Type),*) -> c_int,
                            >(found)
                        }
                    },)*
                })
            }
        }

        /// The functions of the library that was found.
        pub enum Table {
            Integers(Functions<c_int>),
            Pointers(Functions<*mut c_void>),
        }

        #[allow(non_snake_case)] // MPI's own names
        impl Table {
            $(
                /// # Safety
                /// The requirements of the MPI standard.
                pub unsafe fn $name(&self, $($argument: $type),*) -> c_int {
                    // SAFETY: the caller's promise.
                    unsafe {
                        match self {
                            Table::Integers(f) => (f.$name)($(Argument::<c_int>::pass($argument)),*),
                            Table::Pointers(f) => (f.$name)($(Argument::<*mut c_void>::pass($argument)),*),
                        }
                    }
                }
            )*
        }
    };
}

functions! {
    fn MPI_Initialized(flag: *mut c_int);
    fn MPI_Finalized(flag: *mut c_int);
    fn MPI_Init_thread(argc: *mut c_int, argv: *mut c_void, required: c_int, provided: *mut c_int);
    fn MPI_Query_thread(provided: *mut c_int);
    fn MPI_Finalize();
    fn MPI_Abort(comm: Handle, code: c_int);
    fn MPI_Error_string(code: c_int, text: *mut c_char, length: *mut c_int);
    fn MPI_Comm_set_errhandler(comm: Handle, handler: Handle);
    fn MPI_Comm_rank(comm: Handle, rank: *mut c_int);
    fn MPI_Comm_size(comm: Handle, size: *mut c_int);
    fn MPI_Comm_idup(comm: Handle, new: Handles, request: Handles);
    fn MPI_Comm_split(comm: Handle, color: c_int, key: c_int, new: Handles);
    fn MPI_Comm_get_attr(comm: Handle, key: c_int, value: *mut c_void, flag: *mut c_int);
    fn MPI_Isend(buffer: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle, request: Handles);
    fn MPI_Irecv(buffer: *mut c_void, count: c_int, datatype: Handle, from: c_int, tag: c_int, comm: Handle, request: Handles);
    fn MPI_Recv(buffer: *mut c_void, count: c_int, datatype: Handle, from: c_int, tag: c_int, comm: Handle, status: *mut c_void);
    fn MPI_Iprobe(from: c_int, tag: c_int, comm: Handle, flag: *mut c_int, status: *mut c_void);
    fn MPI_Send_init(buffer: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle, request: Handles);
    fn MPI_Recv_init(buffer: *mut c_void, count: c_int, datatype: Handle, from: c_int, tag: c_int, comm: Handle, request: Handles);
    fn MPI_Startall(count: c_int, requests: Handles);
    fn MPI_Testall(count: c_int, requests: Handles, flag: *mut c_int, statuses: *mut c_void);
    fn MPI_Request_free(request: Handles);
    fn MPI_Ibarrier(comm: Handle, request: Handles);
    fn MPI_Ibcast(buffer: *mut c_void, count: c_int, datatype: Handle, root: c_int, comm: Handle, request: Handles);
    fn MPI_Ireduce(send: *const c_void, receive: *mut c_void, count: c_int, datatype: Handle, op: Handle, root: c_int, comm: Handle, request: Handles);
    fn MPI_Iallgather(send: *const c_void, send_count: c_int, send_type: Handle, receive: *mut c_void, receive_count: c_int, receive_type: Handle, comm: Handle, request: Handles);
    fn MPI_Ialltoall(send: *const c_void, send_count: c_int, send_type: Handle, receive: *mut c_void, receive_count: c_int, receive_type: Handle, comm: Handle, request: Handles);
}

impl Table {
    /// Size of a handle in bytes.
    pub fn width(&self) -> usize {
        match self {
            Table::Integers(_) => size_of::<c_int>(),
            Table::Pointers(_) => size_of::<*mut c_void>(),
        }
    }

    /// Returns the address of the handle that lies `i` handles after `first`.
    pub fn nth(&self, first: Handles, i: usize) -> Handles {
        Handles(first.0.cast::<u8>().wrapping_add(i * self.width()).cast())
    }

    /// Writes a handle in the library's width.
    ///
    /// # Safety
    /// `at` must point to memory for one handle of this width.
    pub unsafe fn store(&self, handle: Handle, at: Handles) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Table::Integers(_) => at.0.cast::<c_int>().write(c_int::of(handle)),
                Table::Pointers(_) => at.0.cast::<*mut c_void>().write(<*mut c_void>::of(handle)),
            }
        }
    }

    /// Reads a handle.
    ///
    /// # Safety
    /// `at` must point to a handle of this width.
    pub unsafe fn load(&self, at: Handles) -> Handle {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Table::Integers(_) => at.0.cast::<c_int>().read().handle(),
                Table::Pointers(_) => at.0.cast::<*mut c_void>().read().handle(),
            }
        }
    }
}
